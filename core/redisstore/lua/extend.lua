-- Extend makes a live hold last for its TTL from now, never less than before.
--
-- KEYS[1]  the key's hash
-- ARGV     1 'extend', 2 lease, 3 TTL in ms
-- answer   OK      it is held
--          {LOST}  it is not
--
-- The first write is a PEXPIRE or HDEL, which a server out of memory accepts;
-- after it the HSET is accepted too.

local field = 'h:' .. ARGV[2]
local value = redis.call('HGET', key, field)
if not value then
  return {LOST}
end
local deadline, most, rest = string.match(value, '^(%d+) (%d+)( .*)$')
deadline = math.min(tonumber(deadline), now + most)
if deadline <= now then
  redis.call('HDEL', key, field)
  return {LOST}
end
local ttl = tonumber(ARGV[3])
if now + ttl > deadline then
  local left = redis.call('PTTL', key)
  redis.call('PEXPIRE', key, math.max(left, ttl))
  redis.call('HSET', key, field, now + ttl .. ' ' .. ARGV[3] .. rest)
end
return OK
