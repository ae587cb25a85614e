-- Release ends a hold. It wakes the waiters if the key is free now, or will be free
-- sooner. See redisson.lua.
--
-- KEYS[1]  the key; KEYS[2], if it is in the same slot, the line of Redisson's fair lock, whose
--          head listens to a channel of its own
-- ARGV     1 'release', or 'revoke' for a hold of Redisson's too, 2 lease, or its field,
--          3 the channel, 4 for how many ms the key stays taken; of 'revoke' at least for
--          the rest of the hold's time, if it is not 0
--          5 '1' in a Cluster, where Redisson listens for sharded messages if it can
-- answer   0  it was held, {2}  it was not
--
-- A server out of memory accepts the HDEL, and after it the HSET. Without the right for
-- a later command, the hold is released all the same.

local value = redis.call('HGET', KEYS[1], ARGV[2])
local hold, keep = read(value), tonumber(ARGV[4])
if not value or hold and (hold.owner == '' or hold.ends <= now) or not hold and ARGV[1] ~= 'revoke' then
  return {LOST}
end
local before = redis.pcall('PTTL', KEYS[1])
before = type(before) == 'number' and before >= 0 and before or nil
if keep > 0 and ARGV[1] == 'revoke' then
  keep = math.max(keep, hold and hold.ends - now or before or 0)
end
redis.call('HDEL', KEYS[1], ARGV[2])
if keep > 0 then
  -- In a field of its own: Redisson goes on with a field that it knows.
  write('kept:' .. ARGV[2], now + keep, '', 0)
  last(keep)
end
local ends, others = 0, false
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local left = read(fields[i + 1])
  others = others or not left and fields[i] ~= 'mode' -- of a read-write lock that nobody holds
  ends = math.max(ends, left and left.ends or 0)
end
if others then
  return 0
end
local ms = ends - now
if ms > 0 then
  redis.pcall('PEXPIRE', KEYS[1], string.format('%.0f', ms))
else
  redis.call('DEL', KEYS[1])
end
if not before or ms < before then
  local head = KEYS[2] and redis.pcall('LINDEX', KEYS[2], 0)
  for _, channel in ipairs({ARGV[3], type(head) == 'string' and ARGV[3] .. ':' .. head or nil}) do
    redis.pcall('PUBLISH', channel, '0')
    if ARGV[5] then
      redis.pcall('SPUBLISH', channel, '0') -- servers before 7.0 have none
    end
  end
end
return 0
