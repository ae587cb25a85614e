-- What a script needs where its first look does not settle it: numbers, names of numbers,
-- and what reads and writes a string. To make a function costs the server a fiftieth of the
-- shortest script, so that none is made before.
--
-- after    clock.lua (key, stamp), and free.lua or only.lua where there is one
-- KEYS[1], ARGV and answer are those of the script

-- The time, as a number, in us and in ms.
local us = tonumber(stamp)
local now = (us - us % 1000) / 1000
-- These names are for code outside of functions. In a function each would be an upvalue,
-- which costs a hundredth of a short script to make: most functions have the number.

-- The weight and the limit of an exclusive claim, as a number and as holds have it.
local ALL, EXCLUSIVE = 2147483647, '2147483647'
-- The tokens of a grant (core.TokenStep), and those after its first.
local STEP, REST = 64, 63
-- A place in line lasts for so many ms (core.WaiterLife). What is granted by message lasts
-- for WINDOW and the time since its waiter asked, which is ASKED at most. See push.go.
local WAITER_LIFE, WINDOW, ASKED = 10000, 1500, 7000
local SHORT = '^(%d+) (%S+) (%S+)$'
local isString = false

-- fields is what HGETALL answers, or would if the string were a hash. It takes the
-- answer of GET, if that was asked. GET of a hash is avoided: servers count the commands
-- that they refuse, and operators may have an alert on that.
local function fields(value)
  if value == nil or type(value) == 'table' then
    local kind = redis.call('TYPE', key).ok
    if kind ~= 'string' then
      return kind == 'none' and {} or redis.call('HGETALL', key)
    end
    value = redis.call('GET', key)
  end
  if not value then
    return {}
  end
  isString = true
  local ms, owner, lease = string.match(value, SHORT)
  if ms then
    -- When the key was set, also by a clock that was set back since then. If something else has
    -- removed the key's end it is as if that was in the future: it lasts from now on. The two
    -- clocks of TIME and PTTL can differ by a millisecond, so the token is the end of the
    -- next one. The weight is EXCLUSIVE.
    local left = redis.call('PTTL', key)
    local began = left < 0 and now + 1 or now + math.max(left, 1) - ms
    return {'h:' .. lease, string.format('%.0f000 %s %s 2147483647', began, ms, owner), 't', string.format('%.0f999', began + 1)}
  end
  if string.sub(value, 1, 2) ~= 'f\t' then
    -- No Store wrote it: this raises the server's own error (WRONGTYPE).
    redis.call('HGETALL', key)
  end
  local flat, n, pos = {nil, nil, nil, nil, nil, nil}, 0, 3
  while pos <= #value do
    local space = string.find(value, ' ', pos, true) or #value
    local name = string.sub(value, pos, space - 1)
    -- Only v can have a tab in it.
    pos = name ~= 'v' and string.find(value, '\t', space, true) or #value + 1
    flat[n + 1], flat[n + 2] = name, string.sub(value, space + 1, pos - 1)
    n, pos = n + 2, pos + 1
  end
  return flat
end

-- joined is the string of the fields that stay and those that are set. What is both
-- set and dropped is dropped. The last ones are t, w and v.
local function joined(flat, set, drop)
  local new, all, n, token, waits, last = {}, {'f', nil, nil, nil}, 1, '', '', ''
  for i = 1, #set, 2 do
    new[set[i]] = set[i + 1]
  end
  for i = 1, #drop do
    new[drop[i]] = false
  end
  local function add(name, value)
    if name == 'v' then
      last = '\tv ' .. value
    elseif name == 'w' then
      waits = '\tw ' .. value
    elseif name == 't' then
      token = '\tt ' .. (type(value) == 'number' and string.format('%.0f', value) or value)
    else
      n = n + 1
      all[n] = '\t' .. name .. ' ' .. value
    end
  end
  for i = 1, #flat, 2 do
    if new[flat[i]] == nil then
      add(flat[i], flat[i + 1])
    end
  end
  for name, value in pairs(new) do
    if value then
      add(name, value)
    end
  end
  return table.concat(all) .. token .. waits .. last
end

-- put writes a string that ends ms from now. A server out of memory refuses a SET
-- but not a PEXPIRE, and after it no SET either. Any other error the second SET raises.
local function put(value, ms)
  local refused = redis.pcall('SET', key, value, 'PX', ms).err
  if refused then
    if string.find(refused, 'OOM', 1, true) then
      redis.call('PEXPIRE', key, ms)
    end
    redis.call('SET', key, value, 'PX', ms)
  end
end

-- beyond is ms, or until the clock has passed the tokens of a grant: token and REST more.
local function beyond(ms, token)
  if token + 63 >= us then
    return math.max(ms, math.ceil((token + 63 - us) / 1000) + 1)
  end
  return ms
end
