-- The shortcuts settle most extensions, see acquire_shortcuts.lua. extend.lua describes
-- KEYS, ARGV and the answers, and uses `value`.

local value = redis.call('MGET', KEYS[1])[1]

-- Only the hold's own field is parsed and changed, because parsing many fields takes a
-- server milliseconds. Expired entries stay until another script reads the key.
local name = '\th:' .. ARGV[2] .. ' '
local at = value and string.find(value, name, 1, true)
-- A match after the name of the field v is a part of the record's value, not a field.
if at and not string.find(string.sub(value, 1, at), '\tv ', 1, true) then
  local from, stop, since, ms = string.find(value, '^(%d+) (%d+)', at + #name)
  local left, ends = since + ms * 1000 - us, redis.call('PTTL', KEYS[1])
  if us - since >= 0 and left > 0 and left < ARGV[3] * 1000 and ends > 0 then
    local longer = string.sub(value, 1, from - 1) .. stamp .. ' ' .. ARGV[3] .. string.sub(value, stop + 1)
    if redis.pcall('SET', KEYS[1], longer, 'PX', math.max(ends, tonumber(ARGV[3]))).ok then
      return OK
    end
  end
end
