-- Extend makes a hold last for a TTL from now, never less than before. See redisson.lua.
--
-- KEYS[1]  the key
-- ARGV     1 'extend', 2 lease, 3 TTL in ms
-- answer   0  it is held, {2}  it is not

local hold = read(redis.call('HGET', KEYS[1], ARGV[2]))
if not hold or hold.owner == '' or hold.ends <= now then
  return {LOST}
end
local ms = tonumber(ARGV[3])
write(ARGV[2], math.max(now + ms, hold.ends), hold.owner, hold.token)
last(ms)
return 0
