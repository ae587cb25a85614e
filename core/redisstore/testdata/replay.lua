-- This program runs scripts again with the replies that record.lua has recorded, and
-- prints differences. Its standard input is Lua code that calls the functions script and
-- case. It runs under Lua 5.1 and 5.4.

local number = '^%-?%d+$'
local scripts, failed, unordered = {}, 0, pairs

-- ordered returns pairs in the order of the keys.
local function ordered(t)
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

-- compile returns a function that runs text with the given globals only.
local function compile(text, name)
  local globals = {}
  local env = setmetatable({}, {
    __index = function(_, k) return globals[k] == nil and error('there is no ' .. k, 2) or globals[k] end,
    __newindex = function(_, k) error(k .. ' is global', 2) end,
  })
  local code
  if setfenv then
    code = assert(loadstring(text, name))
    setfenv(code, env)
  else
    code = assert(load(text, name, 't', env))
  end
  return function(g)
    globals = g
    return code()
  end
end

-- same reports whether two answers are the same. A number in an answer has to be an
-- integer, because Redis returns only integers.
local function same(a, b)
  if type(a) ~= type(b) then
    return false
  elseif type(a) ~= 'table' then
    return a == b and (type(a) ~= 'number' or string.find(string.format('%.0f', a), number) ~= nil
      and (not math.type or math.type(a) == 'integer'))
  end
  for k in unordered(b) do
    if a[k] == nil then
      return false
    end
  end
  for k, v in unordered(a) do
    if not same(v, b[k]) then
      return false
    end
  end
  return true
end

function script(name, text)
  scripts[name] = compile(text, '=' .. name)
end

function case(name, keys, argv, noted)
  local at = 0
  local function command(...)
    at = at + 1
    local want = noted.calls[at] or {args = {}}
    for i = 1, math.max(select('#', ...), #want.args) do
      local arg = select(i, ...)
      if type(arg) == 'number' then
        arg = math.type and tostring(arg) or string.format('%.17g', arg)
      end
      if arg ~= want.args[i] then
        error(string.format('call %d is %s with %q, and was %q', at, (...), tostring(arg), tostring(want.args[i])), 0)
      end
    end
    return want.reply
  end
  local ok, answer = pcall(scripts[name], {
    KEYS = keys, ARGV = argv, string = string, math = math, table = table, type = type, tonumber = tonumber,
    pairs = ordered, ipairs = ipairs, pcall = pcall,
    redis = {call = command, pcall = command, error_reply = function(text) return {err = text} end},
  })
  if ok and at ~= #noted.calls then
    ok, answer = false, string.format('it made %d calls, and %d before', at, #noted.calls)
  elseif ok and not same(answer, noted.answer) then
    ok, answer = false, 'it answers otherwise'
  end
  if not ok then
    failed = failed + 1
    if failed <= 5 then
      print(name .. ' ' .. argv[1] .. ': ' .. tostring(answer))
    end
  end
end

assert((loadstring or load)(io.read('*a'), '=cases'))()
os.exit(failed == 0 and 0 or 1)
