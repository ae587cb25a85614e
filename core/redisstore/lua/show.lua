-- Show returns the operators' view of a key: everything except the value of its record.
-- It changes nothing.
--
-- KEYS[1]  the key
-- ARGV     1 'show', 2 used by plain_show.lua only
-- answer   {OK, <time in us>, <field>, <value>, ...}, the fields as in clock.lua;
--          {LOST} or WRONGTYPE if no Store wrote the value of the key

local value, state = redis.call('MGET', KEYS[1])[1], nil
if not value then
  local got = redis.call('HGETALL', KEYS[1])
  local ours = #got == 0
  for i = 1, #got, 2 do
    ours = ours or got[i] == 'n'
  end
  state = ours and whole(got, '')
elseif value == 'f' or string.find(value, '^%d+ %S+ %S+$') or string.find(value, '^f\t') then
  state = load(value, '')
end
if not state then
  return {LOST}
end

local answer = {OK, stamp}
for name, text in string.gmatch(written(state), '\t(%S+) ([^\t]*)') do
  answer[#answer + 1], answer[#answer + 2] = name, text
end
return answer
