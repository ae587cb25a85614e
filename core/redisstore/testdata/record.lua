-- This program runs the script that replaces SCRIPT, and records its calls to the server.
--
-- answer  a table in Lua: the calls of the script with their replies, and the answer

local calls, real, unordered = {}, redis, pairs

local function literal(v)
  if type(v) == 'table' then
    local all = {}
    for k, x in unordered(v) do
      all[#all + 1] = '[' .. literal(k) .. ']=' .. literal(x)
    end
    return '{' .. table.concat(all, ',') .. '}'
  elseif type(v) == 'number' then
    return string.format('%.17g', v)
  elseif type(v) == 'string' then
    return string.format('%q', v)
  end
  return tostring(v)
end

local function noting(command)
  return function(...)
    local args = {...}
    for i, v in ipairs(args) do
      args[i] = type(v) == 'number' and string.format('%.17g', v) or v
    end
    local reply = command(...)
    calls[#calls + 1] = {args = args, reply = reply}
    return reply
  end
end
local redis = {call = noting(real.call), pcall = noting(real.pcall), error_reply = real.error_reply}

-- pairs iterates in the order of the keys, as in replay.lua.
local function pairs(t)
  local keys, i = {}, 0
  for k in unordered(t) do
    keys[#keys + 1] = k
  end
  table.sort(keys)
  return function()
    i = i + 1
    return keys[i], t[keys[i]]
  end
end

local function script()
SCRIPT
end
return literal({answer = script(), calls = calls})
