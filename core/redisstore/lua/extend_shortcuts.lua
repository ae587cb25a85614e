-- What settles the most extensions, see acquire_shortcuts.lua. KEYS, ARGV and the answers
-- are those of extend.lua.

local value = redis.call('GET', KEYS[1])
if not value then
  return {LOST}
end

-- What most holds are that were extended before.
local held, since, ms, rest, token = string.match(value, '^f\th:(%S+) (%d+) (%d+) (%S+ 2147483647\tt (%d+))$')
if held == ARGV[2] and us - since >= 0 and us - token > 63 then
  local left = since + ms * 1000 - us
  local longer = 'f\th:' .. held .. ' ' .. stamp .. ' ' .. ARGV[3] .. ' ' .. rest
  if left > 0 and left < ARGV[3] * 1000 and redis.pcall('SET', KEYS[1], longer, 'PX', ARGV[3]).ok then
    return OK
  end
end

-- One of many: to read them all takes a server milliseconds. So only its own field is
-- written anew; what has ended beside it stays until another script reads the key.
if #value > 1024 then
  local name = '\th:' .. ARGV[2] .. ' '
  local at = string.find(value, name, 1, true)
  -- What is behind the name of a value is the value's.
  if at and not string.find(string.sub(value, 1, at), '\tv ', 1, true) then
    local from, stop, since, ms = string.find(value, '^(%d+) (%d+)', at + #name)
    local left, ends = since + ms * 1000 - us, redis.call('PTTL', KEYS[1])
    if us - since >= 0 and left > 0 and left < ARGV[3] * 1000 and ends > 0
      and redis.pcall('SET', KEYS[1], string.sub(value, 1, from - 1) .. stamp .. ' ' .. ARGV[3] .. string.sub(value, stop + 1),
        'PX', math.max(ends, tonumber(ARGV[3]))).ok then
      return OK
    end
  end
end
