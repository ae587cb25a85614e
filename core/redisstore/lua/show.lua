-- Show returns what an operator may see of a key: everything except the value of its
-- record. It changes nothing.
--
-- KEYS[1]  the key
-- ARGV     1 'show'
-- answer   {OK, <time in us>, <field>, <value>, ...}, the fields as in clock.lua;
--          {LOST} if no Store wrote the value of the key

-- failed returns the answer for a refused command. The errors of servers before 7.2 do
-- not name the command.
local function failed(reply, command)
  if type(reply) == 'table' and reply.err then
    return string.find(reply.err, 'WRONGTYPE', 1, true) and {LOST} or redis.error_reply('NOPERM ' .. command .. ': ' .. reply.err)
  end
end

local got = redis.pcall('MGET', KEYS[1])
local refused, value, ours, state = failed(got, 'MGET'), got[1], nil, nil
if not refused and not value then
  got = redis.pcall('HGETALL', KEYS[1])
  refused, ours = failed(got, 'HGETALL'), #got == 0
  for i = 1, #got, 2 do
    ours = ours or got[i] == 'n'
  end
  state = not refused and ours and whole(got, '')
elseif value and (value == 'f' or string.find(value, '^%d+ %S+ %S+$') or string.find(value, '^f\t')) then
  state = load(value, '')
end
if not state then
  return refused or {LOST}
end

local answer = {OK, stamp}
for name, text in string.gmatch(written(state), '\t(%S+) ([^\t]*)') do
  answer[#answer + 1], answer[#answer + 2] = name, text
end
return answer
