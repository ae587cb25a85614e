-- Show returns what is in a key, for an operator. It changes nothing. See redisson.lua.
--
-- KEYS[1]  the key
-- ARGV     1 'show', 2 how many fields a lock has at most
-- answer   {0, <time in ms>, <ms that the key has left>, fields and values}; {0} if there is
--          no such key; {2} if it is no lock

local size = redis.pcall('HLEN', KEYS[1])
if type(size) == 'table' and size.err then
  if string.find(size.err, 'WRONGTYPE', 1, true) then
    return {LOST}
  end
  -- Servers before 7.2 do not say which command was refused.
  return redis.error_reply('NOPERM HLEN: ' .. size.err)
end
if size == 0 then
  return {OK}
end
if size > tonumber(ARGV[2]) then
  return {LOST}
end
local answer = {OK, now, redis.call('PTTL', KEYS[1])}
for _, text in ipairs(redis.call('HGETALL', KEYS[1])) do
  answer[#answer + 1] = text
end
return answer
