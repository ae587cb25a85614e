-- The waiters of a key, and the choice of the waiters that are woken or granted the
-- key.
--
-- ARGV     1 '<verb> <flags> <id> <wake>': the flags, the id of the channel that wakes
--          the process, and the prefix of all such channels; the rest as in the script

-- MOST is the maximum number of waiters that are granted in one step. The next waiter
-- is woken, and its acquire wakes or grants the others. For a hash, wake reads the holds
-- of only this many waiters' owners. A later waiter is woken if its claim fits without
-- joining a hold.
local MOST = 100
-- A line of the wait list contains lease, deadline, kind, weight, limit, owner and
-- channel id: "\nL2 1764088672123 5 2147483647 2147483647 O2 C2\nL3 ...\n". A list
-- begins with a line end. Kinds: 0 none of the following, 1 fair, 2 with a record, 3
-- fair with a record, 4 can be granted by message, 5 fair and can be granted by
-- message.
local ENTRY = '(%S+) (%d+) (%d) (%d+) (%d+) (%S+) (%S+)\n'
local FAIR = {['1'] = true, ['3'] = true, ['5'] = true}

local function has(flag)
  return string.find(flags, flag, 1, true) ~= nil
end

-- begun reports whether the record's run was begun by lease and has not ended.
local function begun(record, lease)
  return record and record.by == lease and (record.state == '0' or record.state == '3')
end

-- alive reports whether a waiter's place has not expired. A deadline too far in the
-- future was written before the clock was set back, and counts as expired. Its waiter
-- may be gone. A live waiter asks again.
local function alive(deadline)
  deadline = tonumber(deadline)
  return deadline > now and deadline <= now + 2 * WAITER_LIFE
end

-- place returns the beginning and end of the lease's live entry in the wait list. It
-- removes an expired entry.
local function place(s, lease)
  local from = string.find(s.waits, '\n' .. lease .. ' ', 1, true)
  if not from then
    return nil
  end
  local to = string.find(s.waits, '\n', from + 1, true)
  local deadline = string.match(s.waits, ' (%d+)', from)
  if alive(deadline) then
    return from + 1, to
  end
  s.waits = string.sub(s.waits, 1, from) .. string.sub(s.waits, to + 1)
  return nil
end

-- wake wakes the first waiter that fits now and can be reached. If the waiter can be
-- granted the key by message, announce publishes the grant. Any other waiter has to ask.
-- A fair waiter keeps its place until it asks, and its claim counts for the fair waiters
-- after it. wake also wakes the first waiter that lacks room only because of kept holds.
-- The waiter then learns when these holds expire. In a Cluster the number of receivers
-- means nothing, because a receiver may be connected to another node.
local function wake(s)
  local kept = s.owners['']
  kept = kept and kept.sum or 0
  if #s.waits <= 1 or s.sum - kept >= ALL then
    return
  end
  -- grant admits a waiter before the waiter asks again. It returns false if the waiter's
  -- last request is older than ASKED, if MOST waiters were granted in this step, or if
  -- the waiter's process does not listen. The hold is short, because the waiter may be
  -- gone.
  local function grant(id, lease, deadline, weight, owner)
    local age, token = WAITER_LIFE - (deadline - now), 0
    if age < 0 or age > ASKED or #s.granted >= MOST or (listening(id) or 0) == 0 then
      return false
    end
    if weight == ALL then
      s.token = math.max(s.token + STEP, us)
      token = s.token
    end
    hold(s, owner, weight)
    s.latest = math.max(s.latest or 0, now + age + WINDOW)
    s.leases['h:' .. lease] = text(age + WINDOW, owner, weight)
    s.granted[#s.granted + 1] = {field = 'h:' .. lease, owner = owner, weight = weight, id = id,
      ends = now + age + WINDOW,
      message = string.format('%s %s\n%s %.0f %.0f', KEYS[1], lease, deadline, token, age + WINDOW)}
    return true
  end
  -- notify wakes a waiter, and returns whether its process may receive the wake-up.
  local function notify(id, lease)
    local heard = publish(id, KEYS[1] .. ' ' .. lease)
    return has('c') or not heard or heard > 0 and listening(id) ~= 0
  end
  s.granted, s.ungranted = {}, s.latest
  local left, pos, reached, hinted = {'\n'}, 2, false, kept == 0
  local ahead, cap, looked = 0, ALL, 0
  while pos <= #s.waits and not reached and (s.sum < ALL or not hinted) do
    local stop = string.find(s.waits, '\n', pos, true)
    local line = string.sub(s.waits, pos, stop)
    local lease, deadline, kind, weight, limit, owner, id = string.match(line, ENTRY)
    local stay = alive(deadline)
    if stay then
      weight, limit = tonumber(weight), tonumber(limit)
      looked = looked + 1
      local known = not s.part or looked <= MOST
      local fair, held = FAIR[kind], known and holding(s, owner)
      local sum = s.sum + weight - (held and held.sum or 0)
      local most = limit
      if fair and not held then
        sum, most = sum + ahead, math.min(limit, cap)
      end
      if sum <= most then
        -- Kinds 4 and 5 can be granted by message.
        if kind >= '4' and known and not held and grant(id, lease, deadline, weight, owner) then
          stay, fair = false, false
        else
          reached = notify(id, lease)
          stay = fair or not reached
        end
      elseif not hinted and sum - kept <= most then
        hinted = notify(id, lease)
      end
      if fair and not held then
        ahead, cap = ahead + weight, most
      end
    end
    if stay then
      left[#left + 1] = line
    end
    pos = stop + 1
  end
  s.waits = table.concat(left) .. string.sub(s.waits, pos)
end

-- announce publishes the grants of wake after they were written. It undoes a grant that
-- no process receives, and then also shortens the life of the key.
local function announce(s)
  local unheard, latest = false, s.ungranted
  for _, g in ipairs(s.granted or {}) do
    if (publish(g.id, g.message) or 0) == 0 then
      hold(s, g.owner, -g.weight)
      s.leases[g.field], unheard = nil, true
    else
      latest = math.max(latest or 0, g.ends)
    end
  end
  if unheard then
    s.latest = latest
    save(s, true)
  end
end
