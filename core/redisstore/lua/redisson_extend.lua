-- Extend makes a hold last for a TTL from now, and never shortens it. redisson.lua
-- describes the key.
--
-- KEYS[1]  the key
-- ARGV     1 'extend', 2 lease, 3 TTL in ms
-- answer   0  extended, {2}  not held
--
-- The HSET is the last command that can be refused. So after a refusal (NOPERM) the hold
-- and the key last as long as before.

local hold = read(redis.call('HGET', KEYS[1], ARGV[2]))
if not hold or hold.owner == '' or hold.ends <= now then
  return {LOST}
end
local left, ends = lifetime(), math.max(now + tonumber(ARGV[3]), hold.ends)
write(ARGV[2], ends, hold.owner, hold.token)
lastFor(ends - now, left)
return 0
