-- Extend makes a live hold last for its TTL from now, never less than before.
--
-- KEYS[1]  the key's hash
-- ARGV     1 'extend', 2 lease, 3 TTL in ms
-- answer   OK      it is held
--          {LOST}  it is not
--
-- The first write is a PEXPIRE, which a server out of memory accepts; after it
-- the HSET is accepted too.

local field = 'h:' .. ARGV[2]
local value = redis.call('HGET', key, field)
if not value then
  return {LOST}
end
local mid = string.find(value, ' ', 1, true)
local stop = string.find(value, ' ', mid + 1, true)
local deadline = math.min(tonumber(string.sub(value, 1, mid - 4)), now) + string.sub(value, mid + 1, stop - 1)
if deadline <= now then
  return {LOST}
end
local ttl = tonumber(ARGV[3])
if now + ttl > deadline then
  local left = redis.call('PTTL', key)
  redis.call('PEXPIRE', key, math.max(left, ttl))
  local hold = stamp() .. ' ' .. ARGV[3] .. string.sub(value, stop)
  if string.find(value, ' ', stop + 1, true) then
    redis.call('HSET', key, field, hold)
  else
    -- It will not tell the token any more.
    local token, last = string.sub(value, 1, mid - 1), redis.call('HGET', key, 't')
    if last and tonumber(last) > tonumber(token) then
      token = last
    end
    redis.call('HSET', key, field, hold .. ' 2147483647', 't', token)
  end
end
return OK
