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
