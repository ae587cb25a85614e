-- Release ends a hold. It wakes the waiters if the key is free now, or will be free
-- sooner than before. redisson.lua describes the key.
--
-- KEYS[1]  the key
-- KEYS[2]  the queue of Redisson's fair lock, if it is in the same slot; the first waiter
--          of the queue listens to a separate channel
-- ARGV     1 'release', or 'revoke', which also ends a hold of Redisson; 2 the lease, or
--          the field of Redisson's hold; 3 the channel; 4 the time in ms for which the key
--          stays taken (if that is not 0, 'revoke' keeps it for at least the rest of the
--          hold); 5 '1' in a Cluster, where Redisson subscribes to sharded messages if the
--          server has them
-- answer   0  released, {2}  not held
--
-- If the user lacks the right to a command (NOPERM), the script either completes the
-- release or changes nothing (Class.Unchanged in internal/pipeline/classes.go). So the last
-- command that can be refused is the DEL, the first HDEL, or the HSET of a kept hold.

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
local ends, others = keep > 0 and now + keep or 0, false
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if fields[i] ~= ARGV[2] then
    local left = read(fields[i + 1])
    -- A read-write lock that nobody holds has only the field mode.
    others = others or not left and fields[i] ~= 'mode'
    ends = math.max(ends, left and left.ends or 0)
  end
end
local ms = ends - now
if not others and ms <= 0 then
  redis.call('DEL', KEYS[1])
else
  if keep > 0 then
    -- This field has a new name, because Redisson would take a field with the old name
    -- for its thread's hold. The field is absent, so its HDEL changes nothing, but shows
    -- that the next HDEL is not refused either.
    local kept, left = 'kept:' .. ARGV[2], lifetime()
    redis.call('HDEL', KEYS[1], kept)
    write(kept, now + keep, '', 0)
    lastFor(keep, left)
  end
  redis.call('HDEL', KEYS[1], ARGV[2])
end
if others then
  return 0
end
if ms > 0 then
  redis.pcall('PEXPIRE', KEYS[1], string.format('%.0f', ms))
end
if not before or ms < before then
  local head = KEYS[2] and redis.pcall('LINDEX', KEYS[2], 0)
  for _, channel in ipairs({ARGV[3], type(head) == 'string' and ARGV[3] .. ':' .. head or nil}) do
    redis.pcall('PUBLISH', channel, '0')
    if ARGV[5] then
      redis.pcall('SPUBLISH', channel, '0') -- servers before 7.0 do not have this command
    end
  end
end
return 0
