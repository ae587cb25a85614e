-- Show returns the content of a key, for an operator. It changes nothing. redisson.lua
-- describes the key.
--
-- KEYS[1]  the key
-- ARGV     1 'show', 2 used by plain_show.lua only
-- answer   {0, <time in ms>, <remaining ms of the key>, fields and values}; {0} if the key
--          does not exist; {2} or WRONGTYPE if the key is not a lock

local known = redis.call('HLEN', KEYS[1])
if known == 0 then
  return {OK}
end
if not few() then
  return {LOST}
end
local answer = {OK, now, redis.call('PTTL', KEYS[1])}
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local name, value = fields[i], fields[i + 1]
  if not read(value) and name ~= 'mode' and not string.find(value, '^%d+$') then
    return {LOST}
  end
  answer[#answer + 1] = name
  answer[#answer + 1] = value
end
return answer
