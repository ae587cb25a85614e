-- Acquire sets a plain key that is absent, or extends the owner's own key. If the Store
-- expects the key to be absent, it sends a bare SET NX first.
--
-- KEYS[1]  the key
-- ARGV     1 'acquire', 2 owner, 3 TTL in ms
-- answer   0        granted; 0 and 1 are OK and BUSY of clock.lua
--          {1, ms}  busy until the key expires, ms is 0 if it has no expiry

local owner = redis.call('GET', KEYS[1])
if not owner then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 0
end
local left = redis.call('PTTL', KEYS[1])
if owner ~= ARGV[2] then
  return {1, math.max(left, 0)}
end
if left < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 0
