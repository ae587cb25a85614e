-- Acquire tries once to admit a claim. For an exclusive claim that does not wait, a
-- Store usually tries a SET without a script first, see acquireBySet in acquire.go.
-- `value` is from acquire_shortcuts.lua, `holding` from crowd.lua, and the functions on
-- the state `s` from state.lua and waiters.lua.
--
-- KEYS[1]  the key
-- ARGV     1 'acquire <flags> <id> <wake>', see waiters.lua; flags: f fair, w wait,
--          g can be granted by message, c Cluster; 2 lease, 3 owner, 4 TTL in ms.
--          If one of the next four is not the default: 5 weight, 6 limit, 7 owner to
--          join or '', 8 least token; for a run also: 9 the value with which it
--          begins, 10 the ms for which its record is retained
-- answer   token               granted
--          {OK, token, owner}  granted as a hold of the owner that it has joined
--          {OK, token, owner, attempt, ms[, value]}
--                              the same for a run, with the remaining time of its
--                              record, and its value if that is not the claim's
--          {DONE, ms, string}  a finished record, its remaining time, and the whole
--                              stored string; nothing was claimed
--          {BUSY, ms[, n, deadline]}
--                              ms until the first blocking hold expires; for a waiting
--                              claim also the approximate number of waiters, and the
--                              time until which the claim is remembered
--          {LOST}              the lease was released before
--          {HEAVY}             the claim is heavier than the hold that it would join
--
-- A server out of memory refuses the first write of the script, and then nothing has
-- changed.

local lease, owner, ttl = ARGV[2], ARGV[3], tonumber(ARGV[4])
local weight, limit = tonumber(ARGV[5] or ALL), tonumber(ARGV[6] or ALL)
local via, least = ARGV[7] or '', tonumber(ARGV[8] or 0)
local run = ARGV[9]
local fair, wait, listens = has('f'), has('w'), has('g')

local s = load(value, lease, run and -1 or limit - weight)
if s.dead then
  return {LOST}
end

-- room reports whether the claim fits. As its second result it returns the time at
-- which the first entry that blocks the claim expires. `who` is the owner that would
-- hold, and `held` contains this owner's holds so far.
local function room(who, held)
  local sum, cap, after = s.sum + weight - (held and held.sum or 0), limit, s.part and s.part.free
  if not s.part then
    for name, o in pairs(s.owners) do
      if name ~= who then
        after = math.min(after or o.first, o.first)
      end
    end
  end
  if fair and not held and sum <= cap then
    -- Earlier fair waiters count as holders, so a claim that is admitted before them
    -- takes no room from them.
    for other, deadline, queued, w, l, o in string.gmatch(s.waits, ENTRY) do
      if other == lease or sum > cap then
        break
      end
      if FAIR[queued] and o ~= who and alive(deadline) then
        sum, cap = sum + tonumber(w), math.min(cap, tonumber(l))
        after = math.min(after or math.huge, tonumber(deadline))
      end
    end
  end
  return sum <= cap, after
end

-- queue adds the claim to the wait list, or renews its place there.
local function queue(from, to)
  local line = string.format('%s %.0f %d %.0f %.0f %s %s\n', lease, now + math.min(ttl, WAITER_LIFE),
    (fair and 1 or 0) + (run and 2 or 0) + (listens and 4 or 0), weight, limit, owner, id)
  if from then
    s.waits = string.sub(s.waits, 1, from - 1) .. line .. string.sub(s.waits, to + 1)
    return
  end
  -- Checking every entry takes time, and most of the dead entries are at the front. So a
  -- long list is checked if its first entry is dead, and otherwise in one of 64 calls.
  if #s.waits < 4096 or us % 64 == 0 or not alive(string.match(s.waits, ' (%d+)')) then
    local live = {'\n'}
    for other in string.gmatch(s.waits, '[^\n]+\n') do
      if alive(string.match(other, ' (%d+)')) then
        live[#live + 1] = other
      end
    end
    s.waits = table.concat(live)
  end
  s.waits = s.waits .. line
end

local waits = s.waits
local from, to = place(s, lease)

-- The owner that would hold, and its holds so far.
local who, held = owner, holding(s, owner)
if s.own then
  who = s.own.owner
else
  if via ~= '' and holding(s, via) then
    who, held = via, holding(s, via)
  end
  if held and weight > held.heaviest then
    return {HEAVY}
  end
  local fits, after = room(who, held)
  if not fits then
    if wait then
      queue(from, to)
      save(s)
    elseif s.changed or s.waits ~= waits then
      -- An error is ignored, because this save only removes expired entries.
      pcall(save, s)
    end
    local left = math.max((after or now) - now, 1)
    if wait then
      -- A line has about 120 bytes.
      return {BUSY, left, math.ceil(#s.waits / 120), now + math.min(ttl, WAITER_LIFE)}
    end
    return {BUSY, left}
  end
end

local token = 0
if weight == ALL then
  s.token = math.max((s.own or held) and s.token or math.max(s.token + STEP, us), least)
  token = s.token
end
if from then
  s.waits = string.sub(s.waits, 1, from - 1) .. string.sub(s.waits, to + 1)
end
local r, found = s.record, s.value
if run and not (r and (s.own or begun(r, lease))) then
  s.record = {deadline = now + tonumber(ARGV[10]), by = lease, attempt = 1, state = '0', before = ''}
  if r then
    s.record.attempt, s.record.state = r.attempt + 1, '3'
    s.record.before = string.format(' %.0f %s %s', r.deadline, r.state, r.by)
  end
  s.value = found or run
end
local deadline = now + ttl
if s.own then
  -- A duplicate of the claim with another weight does not change the weight.
  deadline, weight = math.max(deadline, s.own.deadline), s.own.weight
else
  hold(s, who, weight)
end
s.own = {deadline = deadline, weight = weight, owner = who}
s.leases['h:' .. lease] = text(deadline - now, who, weight)
wake(s)
save(s)
announce(s)
if run then
  return finish({OK, token, who, s.record.attempt, s.record.deadline - now, found})
end
if who ~= owner then
  return finish({OK, token, who})
end
return finish(token)
