-- Extend makes a live hold last for its TTL from now, never less than before.
--
-- KEYS[1]  the key's hash
-- ARGV     1 'extend', 2 lease, 3 TTL in ms
-- answer   {'ok'}    it is held
--          {'lost'}  it is not
--
-- The first write is a PEXPIRE or HDEL, which a server out of memory accepts;
-- after it the HSET is accepted too.

local field = 'h:' .. ARGV[2]
local value = redis.call('HGET', KEYS[1], field)
if not value then
  return {'lost'}
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ttl = tonumber(ARGV[3])
local deadline, rest = string.match(value, '^(%d+)( .*)$')
deadline = tonumber(deadline)
if deadline <= now then
  redis.call('HDEL', KEYS[1], field)
  return {'lost'}
end
if now + ttl > deadline then
  local left = redis.call('PTTL', KEYS[1])
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(left, ttl)))
  redis.call('HSET', KEYS[1], field, string.format('%.0f', now + ttl) .. rest)
end
return {'ok'}
