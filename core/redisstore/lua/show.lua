-- Show tells what an operator may see of a key: all but the value of its record. It
-- changes nothing.
--
-- KEYS[1]  the key
-- ARGV     1 'show'
-- answer   {OK, <time in us>, <field>, <value>, ...}, the fields as in clock.lua;
--          {LOST} if the key is none of ours

local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and value.err then
  if string.find(value.err, 'WRONGTYPE', 1, true) then
    return {LOST}
  end
  -- Servers before 7.2 do not say which command was refused.
  return redis.error_reply('NOPERM GET: ' .. value.err)
end
if value and value ~= 'f' and not string.find(value, '^%d+ %S+ %S+$') and not string.find(value, '^f\t') then
  return {LOST}
end

local answer = {OK, stamp}
for name, text in string.gmatch(written(load(value, '')), '\t(%S+) ([^\t]*)') do
  answer[#answer + 1], answer[#answer + 2] = name, text
end
return answer
