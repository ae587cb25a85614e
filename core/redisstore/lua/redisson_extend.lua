-- Extend makes a hold last for a TTL from now, and never shortens it. redisson.lua
-- describes the key.
--
-- KEYS[1]  the key
-- ARGV     1 'extend', 2 lease, 3 TTL in ms
-- answer   0  extended, {2}  not held
--
-- A server that is out of memory refuses an HSET as the first write of a script, but not
-- after the PEXPIRE.

local hold = read(redis.call('HGET', KEYS[1], ARGV[2]))
if not hold or hold.owner == '' or hold.ends <= now then
  return {LOST}
end
local ms = tonumber(ARGV[3])
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(redis.call('PTTL', KEYS[1]), ms)))
write(ARGV[2], math.max(now + ms, hold.ends), hold.owner, hold.token)
return 0
