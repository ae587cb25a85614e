-- The shortcuts settle most acquires before the functions of state.lua are defined.
-- Defining them costs the server more than the shortcuts. acquire.lua describes
-- KEYS, ARGV and the answers, and uses `value`.

-- `value` is also nil if the key is a hash, so the SET below has NX. The SET uses pcall,
-- because a server out of memory refuses it even if the key is a hash.
local value = redis.call('MGET', KEYS[1])[1]
if not value and not ARGV[5] then
  local set = redis.pcall('SET', KEYS[1], ARGV[4] .. ' ' .. ARGV[3] .. ' ' .. ARGV[2], 'NX', 'PX', ARGV[4])
  if set and set.ok then
    return stamp
  end
end
if value and ARGV[9] then
  -- A single step with tonumber fails in the Lua of miniredis if nothing matches.
  local deadline = string.match(value, '^f\tr (%d+) %d+ 1 ')
  local left = deadline and deadline - now
  if deadline == '0' then
    left = redis.call('PTTL', KEYS[1])
    left = left == -1 and FOREVER or left
  end
  if left and left > 0 then
    return {DONE, left, value}
  end
end
if not value and ARGV[5] and us - ARGV[8] >= 0 then
  -- The usual first grant of a reader, of permits or of a run.
  local text = '\th:' .. ARGV[2] .. ' ' .. stamp .. ' ' .. ARGV[4] .. ' ' .. ARGV[3] .. ' ' .. ARGV[5]
  local ms, answer = ARGV[4], 0
  if ARGV[5] == '2147483647' then
    text, answer = text .. '\tt ' .. stamp, us
  end
  if ARGV[9] then
    local retain = tonumber(ARGV[10])
    text = string.format('\tr %.0f 1 0 ', now + retain) .. ARGV[2] .. text .. '\tv ' .. ARGV[9]
    ms, answer = math.max(tonumber(ms), retain), {OK, answer, ARGV[3], 1, retain}
  end
  local set = redis.pcall('SET', KEYS[1], 'f' .. text, 'NX', 'PX', ms)
  if set and set.ok then
    return answer
  end
end
if not value and ARGV[5] and not ARGV[9] and ARGV[5] ~= '2147483647' and ARGV[7] == '' then
  -- A reader or permit for which there is room in a crowd without waiters. The lease is
  -- the first one of its owner. glance and settle in crowd.lua do the same.
  local hold, list = 'h:' .. ARGV[2], 'o:' .. ARGV[3]
  local got = redis.call('HMGET', KEYS[1], 'n', 't', 'w', list, hold, 'k:' .. ARGV[2], 'd:' .. ARGV[2])
  local written, first, free, count, sum, kept = string.match(got[1] or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) *$')
  if kept and not (got[3] or got[4] or got[5] or got[6] or got[7]) and us - written >= 0
    and first + LATE > now and sum + ARGV[5] <= tonumber(ARGV[6])
    and us - (got[2] or 0) > 63 and redis.call('PTTL', KEYS[1]) - ARGV[4] >= 0 then
    local ends = now + ARGV[4]
    local n = string.format('%s %.0f %.0f %.0f %.0f %-32s', stamp, math.min(first + 0, ends),
      free == '0' and ends or math.min(free + 0, ends), count + 1, sum + ARGV[5], kept)
    local set = redis.pcall('HSET', KEYS[1], 'n', n, hold, stamp .. ' ' .. ARGV[4] .. ' ' .. ARGV[3] .. ' ' .. ARGV[5],
      list, ' ' .. ARGV[2] .. ' ')
    if type(set) == 'number' then
      return 0
    end
  end
end
