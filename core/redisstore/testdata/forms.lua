-- This program makes the same calls at two simulated servers, and prints differences.
-- One server stores a key with any number of leases as a string. The other server stores
-- a key with more than a few leases as a hash. The values are tables of Lua, and the
-- time is a number. The standard input is Lua that calls script, server, sequence and
-- step.

local ALL = 2147483647
local texts, servers, now, heard, seed, trace = {}, {}, 0, '', 0, {}
local pair, early, hashes, steps = {}, 0, 0, 0

local function left(key)
  if key.value ~= nil and key.ends and key.ends <= now then
    key.value, key.ends = nil, nil
  end
  return key
end

local function refuse(text)
  error({err = text}, 0)
end

local function whole(ms)
  ms = tonumber(ms)
  if not ms or ms ~= math.floor(ms) then
    refuse('ERR value is not an integer: ' .. tostring(ms))
  end
  return ms
end

local function hash(key)
  if left(key).value ~= nil and type(key.value) ~= 'table' then
    refuse('WRONGTYPE')
  end
  return key.value or {}
end

-- commands are the commands of a server with one key. Arguments are texts.
local commands = {
  TIME = function() return {string.format('%.0f', math.floor(now / 1000)), string.format('%.0f', now % 1000 * 1000)} end,
  GET = function(key)
    if type(left(key).value) == 'table' then
      refuse('WRONGTYPE')
    end
    return key.value or false
  end,
  MGET = function(key) return {type(left(key).value) == 'string' and key.value or false} end,
  SET = function(key, _, value, ...)
    local options, ms = {...}, nil
    for i, option in ipairs(options) do
      if option == 'NX' and left(key).value ~= nil then
        return false
      elseif option == 'PX' then
        ms = whole(options[i + 1])
      end
    end
    if ms <= 0 then
      refuse('ERR invalid expire time')
    end
    key.value, key.ends = value, now + ms
    return {ok = 'OK'}
  end,
  DEL = function(key) key.value, key.ends = nil, nil return 1 end,
  PTTL = function(key) return left(key).value == nil and -2 or not key.ends and -1 or key.ends - now end,
  PEXPIRE = function(key, _, ms)
    if left(key).value ~= nil then
      key.ends = now + whole(ms)
    end
    return 1
  end,
  HMGET = function(key, _, ...)
    local fields, got = hash(key), {}
    for i, name in ipairs({...}) do
      got[i] = fields[name] or false
    end
    return got
  end,
  HGETALL = function(key)
    local flat = {}
    for name, text in pairs(hash(key)) do
      flat[#flat + 1], flat[#flat + 2] = name, text
    end
    return flat
  end,
  HSET = function(key, _, ...)
    local fields, words = hash(key), {...}
    for i = 1, #words, 2 do
      fields[words[i]] = words[i + 1]
    end
    key.value = fields
    return 1
  end,
  HDEL = function(key, _, ...)
    local fields = hash(key)
    for _, name in ipairs({...}) do
      fields[name] = nil
    end
    if next(fields) == nil then
      key.value, key.ends = nil, nil
    end
    return 1
  end,
  PUBLISH = function(key, channel, message)
    key.said[#key.said + 1] = channel .. ' ' .. message
    return heard == 'yes' and 1 or 0
  end,
  PUBSUB = function(_, _, channel) return {channel, heard == 'no' and 0 or 1} end,
}

local function call(key, name, ...)
  local args = {...}
  for i = 1, select('#', ...) do
    if type(args[i]) == 'number' then
      args[i] = string.format('%.17g', args[i])
    elseif type(args[i]) ~= 'string' then
      error(name .. ' with a ' .. type(args[i]))
    end
  end
  return commands[name](key, unpack(args))
end

local function run(server, name, argv)
  local key = server.key
  key.said = {}
  setfenv(server.scripts[name], {
    KEYS = {'key'}, ARGV = argv, string = string, math = math, table = table, type = type, tonumber = tonumber,
    pairs = pairs, ipairs = ipairs, pcall = pcall,
    redis = {call = function(...) return call(key, ...) end, pcall = function(...)
      local ok, answer = pcall(call, key, ...)
      return ok and answer or answer == false and false or answer
    end},
  })
  local ok, answer = pcall(server.scripts[name])
  if not ok then
    return {'fails', type(answer) == 'table' and answer.err or answer}
  end
  return answer
end

-- fields returns the fields of a key, for a string in the form of a hash.
local function fields(key)
  local value = left(key).value
  if type(value) == 'table' then
    return value
  end
  local all = {}
  local ms, owner, lease = string.match(value or '', '^(%d+) (%S+) (%S+)$')
  if ms then
    all['h:' .. lease] = string.format('%.0f000 %s %s %.0f', key.ends - ms, ms, owner, ALL)
  end
  local long = string.find(value or '', '\tv ', 1, true)
  for name, text in string.gmatch(string.sub(value or '', 1, (long or 0) - 1), '\t(%S+) ([^\t]*)') do
    all[name] = text
  end
  all.v = long and string.sub(value, long + 3)
  return all
end

-- shown returns the entries of a key that have not expired: first the entries that the
-- rule knows, then all others. Its third result is a fault, or nil.
local function shown(key)
  local ruled, rest, fault = {}, {}, nil
  local all = fields(key)
  for name, text in pairs(all) do
    local kind = string.sub(name, 1, 2)
    if kind == 'h:' or kind == 'k:' or kind == 'd:' then
      local since, ms, owner, weight = string.match(text, '^(%d+) (%d+) ?(%S*) ?(%d*)$')
      local ends = math.min(math.floor(since / 1000), now) + ms
      if ends > now then
        local list = kind == 'd:' and rest or ruled
        list[#list + 1] = string.format('%s %s %s %.0f', name, owner, weight, ends - now)
        if not key.ends or ends > key.ends then
          fault = 'the key ends before ' .. name
        end
      end
    end
  end
  table.sort(ruled)
  for line in string.gmatch(all.w or '', '[^\n]+') do
    local lease, deadline, asks = string.match(line, '^(%S+) (%d+) (.*)$')
    deadline = tonumber(deadline)
    if deadline > now and deadline <= now + 20000 then
      ruled[#ruled + 1] = string.format('w %s %.0f %s', lease, deadline - now, asks)
    end
  end
  if all.r then
    local deadline, text = string.match(all.r, '^(%d+) (.*)$')
    deadline = deadline == '0' and key.ends or tonumber(deadline)
    if deadline > now then
      rest[#rest + 1] = string.format('r %.0f %s %s', deadline, text, all.v)
    end
  end
  if all.t and tonumber(all.t) > now * 1000 + 2000000 then -- the short string has none
    rest[#rest + 1] = 't ' .. all.t
  end
  table.sort(rest)
  return table.concat(ruled, '; '), table.concat(rest, '; '), fault
end

-- wrong returns an inconsistency between the fields of a hash that expires at ends, or
-- nil.
local function wrong(all, ends)
  local written, first, free, count, sum, kept = string.match(all.n, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) *$')
  if not kept then
    return 'n is ' .. all.n
  end
  local lists = 0
  for name, text in pairs(all) do
    local kind = string.sub(name, 1, 2)
    if kind == 'o:' then
      for _ in string.gmatch(text, '%S+') do
        lists = lists + 1
      end
    elseif kind == 'h:' or kind == 'k:' or kind == 'd:' then
      local since, ms, owner, weight = string.match(text, '^(%d+) (%d+) ?(%S*) ?(%d*)$')
      local deadline = math.floor(since / 1000) + ms
      count, sum = count - 1, sum - (tonumber(weight) or 0)
      kept = kept - (kind == 'k:' and weight or 0)
      if tonumber(since) > tonumber(written) or deadline < tonumber(first) or deadline > ends
        or kind ~= 'd:' and deadline < tonumber(free) then
        return name .. ' ' .. text .. ' beside n ' .. all.n
      end
      if kind == 'h:' then
        lists = lists - 1
        if not string.find(all['o:' .. owner] or '', ' ' .. string.sub(name, 3) .. ' ', 1, true) then
          return name .. ' is in no list'
        end
      end
    end
  end
  if tonumber(count) ~= 0 or tonumber(sum) ~= 0 or tonumber(kept) ~= 0 or lists ~= 0 then
    return string.format('n is %s: leases %s, weights %s, kept %s, in lists %d too many', all.n, count, sum, kept, lists)
  end
end

-- said returns the text of an answer. For a busy answer it also returns the ms after
-- which to ask again.
local function said(name, answer, argv)
  if type(answer) ~= 'table' then
    return name == 'acquire' and string.format('granted %s %.0f', argv[3], answer) or answer == 0 and 'ok' or tostring(answer)
  end
  if answer[1] == 1 then
    return 'busy', answer[2]
  elseif answer[1] == 0 then
    return string.format('granted %s %.0f', answer[3], answer[2])
      .. (answer[4] and string.format(' %s %s', answer[4], answer[6] or argv[9]) or '')
  elseif answer[1] == 4 then
    return 'done ' .. string.match(answer[3], '^f\tr %d+ (%d+)') .. string.match(answer[3], '\tv (.*)$')
  end
  return ({[2] = 'lost', [3] = 'heavy'})[answer[1]] or table.concat(answer, ' ')
end

-- near reports whether two texts are the same, except for differences of up to 2.5 ms
-- between tokens. The token of the short string is known only to 2 ms, see clock.lua. A
-- hash can also exist for a moment after its last entry has expired, and then still has
-- its token.
local function near(a, b)
  local token = string.rep('%d', 16)
  if string.gsub(a, token, '') ~= string.gsub(b, token, '') then
    return false
  end
  local others = string.gmatch(b, token)
  for one in string.gmatch(a, token) do
    if math.abs(one - others()) > 2500 then
      return false
    end
  end
  return true
end

local function fail(text)
  print(string.format('seed %d: %s\nafter\n%s', seed, text, table.concat(trace, '\n')))
  os.exit(1)
end

local function copied(server)
  local key = {ends = server.key.ends, value = server.key.value}
  if type(key.value) == 'table' then
    key.value = {}
    for name, text in pairs(server.key.value) do
      key.value[name] = text
    end
  end
  return {scripts = server.scripts, key = key}
end

function script(name, text)
  texts[name] = text
end

function server(name, crowd)
  local scripts = {}
  for script, text in pairs(texts) do
    local changed, n = string.gsub(text, '\nlocal CROWD = %d+\n', '\nlocal CROWD = ' .. crowd .. '\n')
    assert(n == 1, script)
    scripts[script] = assert(loadstring(changed, '=' .. script))
  end
  servers[name] = {scripts = scripts}
end

-- sequence begins a key. The second server stores the key as a hash if it has more than
-- crowd leases.
function sequence(n, crowd)
  seed, trace = n, {}
  pair = {servers.string, servers[crowd]}
  for _, s in ipairs(pair) do
    s.key = {}
  end
end

-- step calls a script at the time ms. listeners is 'yes' if processes listen, 'no' if
-- none does, and 'late' if processes are subscribed but receive no message. `rule` is the
-- result of the rule in Go, or nil.
function step(ms, listeners, name, argv, rule)
  now, heard, steps = ms, listeners, steps + 1
  trace[#trace + 1] = string.format('%.0f %s %s %s', ms, listeners, name, table.concat(argv, ' '))
  local before = copied(pair[2])
  local is = {}
  for i, s in ipairs(pair) do
    local answer, retry = said(name, run(s, name, argv), argv)
    local messages = table.concat(s.key.said, '\n')
    local ruled, rest, fault = shown(s.key)
    is[i] = {all = table.concat({answer, ruled, rest, messages}, ' | '), retry = retry, fault = fault,
      ruled = string.gsub(answer, '^(granted %S*) %d+', '%1') .. ' | ' .. ruled}
    if s.key.value ~= nil and not s.key.ends then
      fail('the key has no end')
    end
  end
  if type(pair[2].key.value) == 'table' then
    hashes = hashes + 1
    is[2].fault = is[2].fault or wrong(pair[2].key.value, pair[2].key.ends)
  end
  trace[#trace] = trace[#trace] .. '\n    ' .. is[2].all
  if is[1].fault or is[2].fault then
    fail('faults: ' .. tostring(is[1].fault) .. ', ' .. tostring(is[2].fault))
  elseif not near(is[1].all, is[2].all) then
    fail('a string: ' .. is[1].all .. '\na hash:   ' .. is[2].all)
  elseif rule and rule ~= is[2].ruled then
    fail('the rule: ' .. rule .. '\na hash:   ' .. is[2].ruled)
  elseif is[1].retry ~= is[2].retry then
    -- A hash can return a time that is too early. After that time, its answer must be
    -- exact.
    early = early + 1
    local exact, first = is[1].retry, is[2].retry
    if first > exact or first < 1 then
      fail(string.format('ask again after %s, in a hash %s', exact, first))
    end
    local one, two = copied(pair[1]), copied(pair[2])
    now = ms + first
    local a, b = {said(name, run(one, name, argv), argv)}, {said(name, run(two, name, argv), argv)}
    if a[2] ~= b[2] then
      fail(string.format('asked after %s: ask again after %s, in a hash %s', first, tostring(a[2]), tostring(b[2])))
    end
  end
end

assert(loadstring(io.read('*a'), '=steps'))()
print(string.format('%d steps, %d beside a hash, %d early answers', steps, hashes, early))
