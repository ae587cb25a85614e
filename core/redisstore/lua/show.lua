-- Show tells what an operator may see of a key: all but the value of its record. It
-- changes nothing, and reads of a hash only what it tells.
--
-- after    clock.lua (key, stamp, OK, LOST), look.lua (SHORT, fields)
-- KEYS[1]  the key
-- ARGV     1 'show'
-- answer   {OK, <time in us>, <field>, <value>, ...}, the fields as in clock.lua;
--          {LOST} if the key is none of ours

-- ask calls a command, and names it if it is refused: servers before 7.2 do not.
local refusal
local function ask(...)
  local got = redis.pcall(...)
  if type(got) == 'table' and got.err then
    refusal = refusal or redis.error_reply('NOPERM ' .. (...) .. ': ' .. got.err)
    return {}
  end
  return got
end

local flat = {}
local kind = ask('TYPE', key)
if kind.ok == 'string' then
  local value = ask('GET', key)
  if type(value) == 'string' then
    if not string.match(value, SHORT) and string.sub(value, 1, 2) ~= 'f\t' then
      return {LOST}
    end
    flat = fields(value)
  end
elseif kind.ok == 'hash' then
  local names = ask('HKEYS', key)
  for from = 1, #names, 1000 do
    local some = {}
    for i = from, math.min(from + 999, #names) do
      if names[i] ~= 'v' then
        some[#some + 1] = names[i]
      end
    end
    local values = #some > 0 and ask('HMGET', key, unpack(some)) or {}
    for i = 1, #values do
      local n = #flat
      flat[n + 1], flat[n + 2] = some[i], values[i]
    end
  end
elseif kind.ok and kind.ok ~= 'none' then
  return {LOST}
end
if refusal then
  return refusal
end
local answer = {OK, stamp}
for i = 1, #flat, 2 do
  if flat[i] ~= 'v' then
    local n = #answer
    answer[n + 1], answer[n + 2] = flat[i], flat[i + 1]
  end
end
return answer
