-- Release for all but the simplest states.
--
-- after    clock.lua (key, stamp, OK, LOST), only.lua (value), look.lua (us, now, ALL), relay.lua,
--          beside.lua (flat),
--          state.lua (channel, has, begun, text, load, hold, alive, place, wake, finish)
-- KEYS[1], ARGV and answer are those of only.lua

local lease = ARGV[2]
local remember, keep = tonumber(ARGV[3]), tonumber(ARGV[5] or 0)
-- Of the short string, see clock.lua, no token is later than now that its holder knows.
local last = tonumber(ARGV[4]) or type(value) == 'string' and string.find(value, '^%d') and us + 63
local attempt, state, retain, value = ARGV[6], ARGV[7], tonumber(ARGV[8] or 0), ARGV[9]

local s = load(flat, lease)
local waits, drop, set = s.waits, s.stale, {}
local from, to = place(s, lease)
local answer = (s.own or from) and OK or {LOST}
local record = s.record
local saves = attempt and (s.own or begun(record, lease))
if saves then
  -- Held or not: no other run was begun since, and no answer saved.
  answer, remember = OK, 0
elseif attempt then
  answer = {LOST}
  if record and record.by == lease and record.state == state
    and record.attempt == tonumber(attempt) and s.value == value then
    -- It has saved this before. Of that, too, there is no tombstone.
    answer, remember = OK, 0
  end
end

-- save replaces the record, or drops it if it is not to be kept.
local function save()
  if retain > 0 then
    s.record, s.spent = {deadline = now + retain}, false
    set[#set + 1], set[#set + 2] = 'r', now + retain .. ' ' .. attempt .. ' ' .. state .. ' ' .. lease
    set[#set + 1], set[#set + 2] = 'v', value
  else
    s.record, s.spent = nil, s.spent or record ~= nil
  end
end

-- uncount takes back what Acquire did to the record.
local function uncount()
  local deadline, state, by = string.match(record.before, '^(%d+) (%d) (%S*)$')
  if record.state == '0' or deadline and tonumber(deadline) <= now then
    s.record, s.spent = nil, true
    return
  end
  s.record = {deadline = tonumber(deadline) or record.deadline}
  set[#set + 1] = 'r'
  set[#set + 1] = s.record.deadline .. ' ' .. record.attempt - 1 .. ' ' .. (state or '2') .. ' ' .. (by or '')
end

if s.own or s.expired then
  drop[#drop + 1] = 'h:' .. lease
end
if s.own then
  if last and s.own.weight == ALL and last - 63 > s.token then
    -- The 64 tokens of the grant end with it.
    s.token, s.untold = last - 63, true
  end
  if keep > 0 and has('l') then
    keep = math.max(keep, s.own.deadline - now)
  end
  if keep > 0 then
    set[1], set[2] = 'k:' .. lease, text(keep, '', s.own.weight)
    s.latest = math.max(s.latest or 0, now + keep)
    hold(s, s.own.owner, -s.own.weight)
    hold(s, '', s.own.weight)
  else
    hold(s, s.own.owner, -s.own.weight)
  end
  s.own = nil
elseif remember > 0 then
  local deadline = math.max(s.dead or 0, now + remember)
  set[1], set[2] = 'd:' .. lease, stamp .. ' ' .. deadline - now
  s.latest = math.max(s.latest or 0, deadline)
end
if saves then
  save()
elseif has('u') and begun(record, lease) then
  uncount()
end
if from then
  s.waits = string.sub(s.waits, 1, from - 1) .. string.sub(s.waits, to + 1)
end
if state == '1' and answer == OK and #s.waits > 1 then
  -- All that wait with a record are answered whenever they ask, and need no place.
  local kept = {'\n'}
  for line in string.gmatch(s.waits, '[^\n]+\n') do
    local lease, deadline, kind, id = string.match(line, '^(%S+) (%d+) (%d) .* (%S+)\n$')
    -- Kinds 2 and 3 have a record, see state.lua.
    if kind ~= '2' and kind ~= '3' then
      kept[#kept + 1] = line
    elseif alive(deadline) then
      redis.pcall('PUBLISH', channel .. id, key .. ' ' .. lease)
    end
  end
  s.waits = table.concat(kept)
end
if #s.waits > 1 and s.sum < ALL then
  wake(s)
end
finish(s, waits, set, drop)
return answer
