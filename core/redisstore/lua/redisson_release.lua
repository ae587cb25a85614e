-- Release ends a hold, and wakes those that wait where it was the last one. See redisson.lua.
--
-- KEYS[1]  the key; KEYS[2], if it is in the same slot, the line of Redisson's fair lock, whose
--          head listens to a channel of its own
-- ARGV     1 'release', or 'revoke' for a hold of Redisson's too, 2 lease, or its field,
--          3 the channel, 4 for how many ms the key stays taken; of 'revoke' at least for
--          the rest of the hold's time, if it is not 0
--          5 '1' in a Cluster, where Redisson listens for sharded messages if it can
-- answer   0  it was held, {2}  it was not

local value = redis.call('HGET', KEYS[1], ARGV[2])
local hold, keep = read(value), tonumber(ARGV[4])
if not value or hold and (hold.owner == '' or hold.ends <= now) or not hold and ARGV[1] ~= 'revoke' then
  return {LOST}
end
if keep > 0 then
  if ARGV[1] == 'revoke' then
    keep = math.max(keep, hold and hold.ends - now or redis.call('PTTL', KEYS[1]))
  end
  write(ARGV[2], now + keep, '', 0)
else
  redis.call('HDEL', KEYS[1], ARGV[2])
end
local ends, others = 0, false
local fields = redis.call('HGETALL', KEYS[1])
for i = 2, #fields, 2 do
  local left = read(fields[i])
  others = others or not left
  ends = math.max(ends, left and left.ends or 0)
end
if ends > now then
  if others then
    last(ends - now)
  else
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ends - now))
  end
elseif not others then
  redis.call('DEL', KEYS[1])
  local head = KEYS[2] and redis.pcall('LINDEX', KEYS[2], 0)
  for _, channel in ipairs({ARGV[3], type(head) == 'string' and ARGV[3] .. ':' .. head or nil}) do
    redis.call('PUBLISH', channel, '0')
    if ARGV[5] then
      redis.pcall('SPUBLISH', channel, '0') -- servers before 7.0 have none
    end
  end
end
return 0
