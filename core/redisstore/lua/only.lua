-- Release gives up a hold or a place in line, and plants a tombstone for a
-- lease that is not held, so that an acquire which comes late is refused. This
-- part does it for a hold that is all there is beside its token and record,
-- release.lua for any other.
--
-- KEYS[1]  the key's hash
-- ARGV     1 'release <flags> <id> <wake>', see state.lua; flags: c cluster, u
--          undo the run that this lease has begun, held or not; 2 lease, 3 ms to
--          remember an unknown lease. If there is more to it: 4 ms to keep the key
--          taken, or 0; to save a record: 5 its attempt, 6 its state (1 or 2, see
--          clock.lua), 7 ms to keep it, 8 its value
-- answer   OK      it was held or waiting; with a record: that is saved
--          {LOST}  it was neither; with a record: it was not held
--
-- The first write is a DEL, HDEL or PEXPIRE, which a server out of memory
-- accepts; after it the others are accepted too.

local flat = redis.call('HGETALL', key)
if #flat <= 4 and not ARGV[4] then
  -- The hold, and perhaps the token, in either order.
  local field = 'h:' .. ARGV[2]
  local i = flat[1] == field and 1 or flat[3] == field and 3
  if i then
    local since, ms = string.match(flat[i + 1], '^(%d+) (%d+)')
    local last = #flat == 2 and since or flat[4 - i] == 't' and flat[5 - i]
    if last and tonumber(last) < us and us < since + ms * 1000 then
      redis.call('DEL', key)
      return OK
    end
  end
end
if ARGV[5] and ARGV[4] == '0' and ARGV[7] ~= '0' then
  local field, held, fresh, told, more = 'h:' .. ARGV[2], false, nil, false, false
  for i = 1, #flat, 2 do
    local name, value = flat[i], flat[i + 1]
    if name == field then
      local since, ms, rest = string.match(value, '^(%d+) (%d+) %S+(.*)$')
      held = tonumber(since) < us and us < since + ms * 1000
      fresh = rest == '' and since
    elseif name == 't' then
      told, more = true, more or tonumber(value) >= us
    elseif name ~= 'r' and name ~= 'v' then
      more = true
      break
    end
  end
  if held and not more then
    redis.call('PEXPIRE', key, ARGV[7])
    local set = {'HSET', key, 'r', now + ARGV[7] .. ' ' .. ARGV[5] .. ' ' .. ARGV[6] .. ' ' .. ARGV[2], 'v', ARGV[8]}
    if fresh and not told then
      set[7], set[8] = 't', fresh
    end
    redis.call(unpack(set))
    redis.call('HDEL', key, field)
    return OK
  end
end
