-- Show returns the operators' view of a plain key. It changes nothing.
--
-- KEYS[1]  the key
-- ARGV     1 'show', 2 the maximum length of an owner
-- answer   {0, <remaining ms>, <owner>}, with -1 ms if the key has no expiry;
--          {0} if there is no key; {2} or WRONGTYPE if it is not a lock: OK and
--          LOST of clock.lua

local got = redis.call('GET', KEYS[1])
if not got then
  return {0}
end
if #got > tonumber(ARGV[2]) then
  return {2}
end
return {0, redis.call('PTTL', KEYS[1]), got}
