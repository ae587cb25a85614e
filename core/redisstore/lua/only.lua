-- Release gives up a hold or a place in line, and plants a tombstone for a
-- lease that is not held, so that an acquire which comes late is refused. This
-- part does it for a hold that is all there is beside its token and record,
-- release.lua for any other.
--
-- KEYS[1]  the key's hash
-- ARGV     1 'release', 2 lease, 3 ms to remember an unknown lease, 4 ms to keep
--          the key taken, 5 flags: c cluster, u undo the run that this lease
--          has begun, held or not, 6 prefix of the wake channels; to save a record: 7 its
--          attempt, 8 its state (1 or 2, see clock.lua), 9 ms to keep it, 10 its
--          value
-- answer   OK      it was held or waiting; with a record: that is saved
--          {LOST}  it was neither; with a record: it was not held
--
-- The first write is a DEL, HDEL or PEXPIRE, which a server out of memory
-- accepts; after it the others are accepted too.

local flat = redis.call('HGETALL', key)
if #flat <= 4 and ARGV[4] == '0' and not ARGV[7] then
  -- The hold, and perhaps the token, in either order.
  local field = 'h:' .. ARGV[2]
  local i = flat[1] == field and 1 or flat[3] == field and 3
  if i and (#flat == 2 or flat[4 - i] == 't' and tonumber(flat[5 - i]) < us)
    and tonumber(string.match(flat[i + 1], '^%d+')) > now then
    redis.call('DEL', key)
    return OK
  end
end
if ARGV[7] and ARGV[4] == '0' and ARGV[9] ~= '0' then
  local field, held, more = 'h:' .. ARGV[2], false, false
  for i = 1, #flat, 2 do
    local name, value = flat[i], flat[i + 1]
    if name == field then
      held = tonumber(string.match(value, '^%d+')) > now
    elseif name == 't' then
      more = more or tonumber(value) >= us
    elseif name ~= 'r' and name ~= 'v' then
      more = true
      break
    end
  end
  if held and not more then
    redis.call('PEXPIRE', key, ARGV[9])
    redis.call('HSET', key, 'r', now + ARGV[9] .. ' ' .. ARGV[7] .. ' ' .. ARGV[8] .. ' ' .. ARGV[2], 'v', ARGV[10])
    redis.call('HDEL', key, field)
    return OK
  end
end
