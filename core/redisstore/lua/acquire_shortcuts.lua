-- What settles the most acquires, before the functions of state.lua are made: that costs
-- the server more than these do. KEYS, ARGV and the answers are those of acquire.lua.

if not ARGV[5] then
  local short = ARGV[4] .. ' ' .. ARGV[3] .. ' ' .. ARGV[2]
  local done = redis.pcall('SET', key, short, 'NX', 'PX', ARGV[4])
  if done and done.ok then
    return stamp
  end
end
local value = redis.call('GET', key)
if ARGV[9] and value then
  local deadline = string.match(value, '^f\tr (%d+) %d+ 1 ')
  local left = tonumber(deadline) and deadline - now
  if deadline == '0' then
    left = redis.call('PTTL', key)
    left = left == -1 and FOREVER or left
  end
  if left and left > 0 then
    return {DONE, left, value}
  end
end
if not value and ARGV[5] and us - ARGV[8] >= 0 then
  -- The usual first grant of a reader, of permits and of a run.
  local text = '\th:' .. ARGV[2] .. ' ' .. stamp .. ' ' .. ARGV[4] .. ' ' .. ARGV[3] .. ' ' .. ARGV[5]
  local ms, answer = tonumber(ARGV[4]), 0
  if ARGV[5] == '2147483647' then
    text, answer = text .. '\tt ' .. stamp, us
  end
  if ARGV[9] then
    text = '\tr ' .. now + ARGV[10] .. ' 1 0 ' .. ARGV[2] .. text .. '\tv ' .. ARGV[9]
    ms, answer = math.max(ms, ARGV[10]), {OK, answer, ARGV[3], 1, tonumber(ARGV[10])}
  end
  redis.call('SET', key, 'f' .. text, 'PX', ms)
  return answer
end
