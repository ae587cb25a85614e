-- Release ends a hold or a waiter's place. For a lease that is not held it writes a
-- tombstone, so that a late acquire is refused. `value`, `last` and `short` are from
-- release_shortcuts.lua, and the functions on the state `s` from state.lua and
-- waiters.lua.
--
-- KEYS[1]  the key
-- ARGV     1 'release <flags> <id> <wake>', see waiters.lua; flags: u undo the run that
--          this lease has begun, even without a hold, l keep the key taken for the rest
--          of the hold, if that is longer, c Cluster; 2 lease, 3 ms to remember an unknown
--          lease, 4 the last used token of the grant, '' if unknown. Optional:
--          5 ms to keep the key taken, or 0; to save a record: 6 its attempt, 7 its
--          state (1 or 2, see clock.lua), 8 the ms for which it is retained, 9 the
--          string to store if nothing else is left, which contains the value
-- answer   OK      it was held or waiting; with a record: the record is saved
--          {LOST}  it was neither; with a record: the record is not saved

local lease = ARGV[2]
local remember, keep = tonumber(ARGV[3]), tonumber(ARGV[5] or 0)
if short and not last then
  -- If the string is short, see clock.lua, the holder knows no token that is later than
  -- now.
  last = us + REST
end
local attempt, state, retain = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
local saved = attempt and string.sub(ARGV[9], string.find(ARGV[9], '\tv ', 1, true) + 3)

local s = load(value, lease, attempt and -1 or math.huge)
local from, to = place(s, lease)
local answer = (s.own or from) and OK or {LOST}
local r = s.record
if attempt and (s.own or begun(r, lease)) then
  -- The record is saved even if the lease has expired. No other run has begun since
  -- then, and no record was saved.
  answer, remember = OK, 0
  s.record, s.value = nil, nil
  if retain > 0 then
    s.record, s.value = {deadline = now + retain, attempt = attempt, state = state, by = lease, before = ''}, saved
  end
elseif attempt then
  answer = {LOST}
  if r and r.by == lease and r.state == state and r.attempt == attempt and s.value == saved then
    -- The lease has already saved this record. That needs no tombstone either.
    answer, remember = OK, 0
  end
elseif has('u') and begun(r, lease) then
  -- The change that the run's acquire made to the record is undone.
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
    -- The 64 tokens of the grant must not be used again.
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
  s.leases['d:' .. lease] = string.format('%s %.0f', stamp, deadline - now)
  s.latest = math.max(s.latest or 0, deadline)
end
if from then
  s.waits = string.sub(s.waits, 1, from - 1) .. string.sub(s.waits, to + 1)
end
if state == '1' and answer == OK and #s.waits > 1 then
  -- All waiters with a record get the answer whenever they ask, and need no place.
  local kept = {'\n'}
  for line in string.gmatch(s.waits, '[^\n]+\n') do
    local lease, deadline, kind, id = string.match(line, '^(%S+) (%d+) (%d) .* (%S+)\n$')
    -- Kinds 2 and 3 have a record, see waiters.lua.
    if kind ~= '2' and kind ~= '3' then
      kept[#kept + 1] = line
    elseif alive(deadline) then
      publish(id, KEYS[1] .. ' ' .. lease)
    end
  end
  s.waits = table.concat(kept)
end
wake(s)
save(s, true)
announce(s)
return finish(answer)
