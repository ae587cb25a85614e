-- Release gives up a hold or a place in line, and plants a tombstone for a
-- lease that is not held, so that an acquire which comes late is refused.
--
-- KEYS[1]  the key
-- ARGV     1 'release <flags> <id> <wake>', see waiters.lua; flags: u undo the run that
--          this lease has begun, held or not, l keep the key taken for the rest of the
--          hold, if that is longer, c cluster; 2 lease, 3 ms to remember an unknown
--          lease, 4 the last token of the grant that was used, '' if that is not known. If
--          there is more to it: 5 ms to keep it taken, or 0; to save a record: 6 its
--          attempt, 7 its state (1 or 2, see clock.lua), 8 ms to keep it, 9 the string
--          to store if nothing else is left, which has its value
-- answer   OK      it was held or waiting; with a record: that is saved
--          {LOST}  it was neither; with a record: that is not saved

-- clock.lua

local value = redis.call('GET', key)
local short = value and string.match(value, '^%d+ %S+ (%S+)$')
if short == ARGV[2] and not ARGV[5] then
  local ahead = ARGV[4] ~= '' and ARGV[4] - stamp
  if ahead and ahead < 0 then
    redis.call('DEL', key)
    return OK
  end
  -- The clock has not passed the tokens that were used. They stay until then, as the last of
  -- the 64 of a grant, so that the next grant has a later one; the hold is gone.
  if ahead and redis.pcall('SET', key, string.format('f\tt %.0f', ARGV[4] - 63), 'PX', math.ceil(ahead / 1000) + 2).ok then
    return OK
  end
end

if ARGV[9] and value and ARGV[8] ~= '0' and ARGV[5] == '0' then
  -- A run that is all there is, and whose tokens the clock has passed.
  local held, since, ms, token =
    string.match(value, '^f\tr %d+ %d+ %d [^\t]*\th:(%S+) (%d+) (%d+) %S+ 2147483647\tt (%d+)\tv ')
  if held == ARGV[2] and us - since < ms * 1000 and us >= tonumber(since)
    and ARGV[4] ~= '' and us - 63 > math.max(token, ARGV[4]) and ARGV[4] - token >= 0
    and redis.pcall('SET', key, ARGV[9], 'PX', ARGV[8]).ok then
    return OK
  end
end

if not ARGV[5] and value then
  -- A hold with waiters beside it, where the first can be granted the key by message. This
  -- does the same as waiters.lua, which has the reasons, in half the time.
  local held, since, ms, last, waits =
    string.match(value, '^f\th:(%S+) (%d+) (%d+) %S+ 2147483647\tt (%d+)\tw (\n[^\t]*)$')
  if held == ARGV[2] and us - since < ms * 1000 and us >= tonumber(since)
    and not string.find(waits, '\n' .. held .. ' ', 1, true) then
    -- The first line of the list: an exclusive claim, of kind 4 or 5.
    local other, deadline, owner, id, rest =
      string.match(waits, '^\n(%S+) (%d+) [45] 2147483647 2147483647 (%S+) (%S+)\n(.*)$')
    local age = other and WAITER_LIFE - (deadline - now)
    local channel = string.match(ARGV[1], '^%a+ %a* %S+ (.*)$')
    if age and age >= 0 and age <= ASKED and tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel .. id)[2] or 0) > 0 then
      local token = math.max(math.max(last, (tonumber(ARGV[4]) or 0) - 63) + 64, us)
      local digits, life = string.format('%.0f', token), age + WINDOW
      local next = 'f\th:' .. other .. ' ' .. stamp .. ' ' .. life .. ' ' .. owner .. ' 2147483647\tt ' .. digits
      if rest ~= '' then
        next = next .. '\tw \n' .. rest
      end
      local ends = math.max(rest ~= '' and WAITER_LIFE or life, math.ceil((token + 63 - us) / 1000) + 1)
      if redis.pcall('SET', key, next, 'PX', ends).ok then
        local got = redis.pcall('PUBLISH', channel .. id, key .. ' ' .. other .. '\n' .. deadline .. ' ' .. digits .. ' ' .. life)
        if type(got) == 'number' and got > 0 then
          return OK
        end
        -- No process has heard it. What follows goes on with the value as it was.
      end
    end
  end
end

-- state.lua
-- waiters.lua

local lease = ARGV[2]
local remember, keep = tonumber(ARGV[3]), tonumber(ARGV[5] or 0)
-- Of the short string, see clock.lua, no token is later than now that its holder knows.
local last = tonumber(ARGV[4]) or short and us + REST
local attempt, state, retain = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
local saved = attempt and string.sub(ARGV[9], string.find(ARGV[9], '\tv ', 1, true) + 3)

local s = load(value, lease)
local from, to = place(s, lease)
local answer = (s.own or from) and OK or {LOST}
local r = s.record
if attempt and (s.own or begun(r, lease)) then
  -- Held or not: no other run was begun since, and no answer saved.
  answer, remember = OK, 0
  s.record, s.value = nil, nil
  if retain > 0 then
    s.record, s.value = {deadline = now + retain, attempt = attempt, state = state, by = lease, before = ''}, saved
  end
elseif attempt then
  answer = {LOST}
  if r and r.by == lease and r.state == state and r.attempt == attempt and s.value == saved then
    -- It has saved this before. Of that, too, there is no tombstone.
    answer, remember = OK, 0
  end
elseif has('u') and begun(r, lease) then
  -- What Acquire did to the record is taken back.
  local deadline, state, by = string.match(r.before, '^ (%d+) (%d) (%S*)$')
  s.record = nil
  if r.state == '3' and not (deadline and tonumber(deadline) <= now) then
    s.record = {deadline = tonumber(deadline) or r.deadline, attempt = r.attempt - 1,
      state = state or '2', by = by or '', before = ''}
  end
end

local own = s.own
s.own, s.leases['h:' .. lease] = nil, nil
if own then
  if last and own.weight == ALL then
    -- The 64 tokens of the grant end with it.
    s.token = math.max(s.token, last - REST)
  end
  hold(s, own.owner, -own.weight)
  if keep > 0 then
    if has('l') then
      keep = math.max(keep, own.deadline - now)
    end
    s.leases['k:' .. lease] = text(keep, '', own.weight)
    s.latest = math.max(s.latest or 0, now + keep)
    hold(s, '', own.weight)
  end
elseif remember > 0 then
  local deadline = math.max(s.dead or 0, now + remember)
  s.leases['d:' .. lease] = stamp .. ' ' .. deadline - now
  s.latest = math.max(s.latest or 0, deadline)
end
if from then
  s.waits = string.sub(s.waits, 1, from - 1) .. string.sub(s.waits, to + 1)
end
if state == '1' and answer == OK and #s.waits > 1 then
  -- All that wait with a record are answered whenever they ask, and need no place.
  local kept = {'\n'}
  for line in string.gmatch(s.waits, '[^\n]+\n') do
    local lease, deadline, kind, id = string.match(line, '^(%S+) (%d+) (%d) .* (%S+)\n$')
    -- Kinds 2 and 3 have a record, see waiters.lua.
    if kind ~= '2' and kind ~= '3' then
      kept[#kept + 1] = line
    elseif alive(deadline) then
      redis.pcall('PUBLISH', channel .. id, key .. ' ' .. lease)
    end
  end
  s.waits = table.concat(kept)
end
wake(s)
save(s, true)
announce(s)
return answer
