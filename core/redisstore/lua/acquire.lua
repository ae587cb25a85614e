-- Acquire for a key that is not free: the rule of admission for any claim.
--
-- after    clock.lua (key, OK, BUSY, LOST, HEAVY), free.lua,
--          look.lua (us, now, ALL, STEP, WAITER_LIFE, isString, joined), run.lua (flat),
--          state.lua (id, has, begun, text, load, hold, alive, place, room, announce, wake, horizon)
-- KEYS[1], ARGV and answer are those of free.lua

local lease, owner, ttl = ARGV[2], ARGV[3], tonumber(ARGV[4])
local weight, limit = tonumber(ARGV[5] or ALL), tonumber(ARGV[6] or ALL)
local via, least = ARGV[7] or '', tonumber(ARGV[8] or 0)
local run = ARGV[9] ~= nil
local fair, wait, listens = has('f'), has('w'), has('g')
local exclusive = weight == ALL

local s = load(flat, lease)
if s.dead then
  return {LOST}
end

-- save writes the hold or the wait list, and the record that a run has begun
-- from an earlier one or none, and what was mended, then drops what is stale.
local function save(waits, field, value, begins, earlier)
  local set, ms = {}, horizon(s)
  if field then
    set[1], set[2] = field, value
    if exclusive then
      set[3], set[4], s.untold = 't', s.token, false
    end
  end
  if s.untold then
    set[#set + 1], set[#set + 2] = 't', s.token
  end
  if begins then
    set[#set + 1], set[#set + 2] = 'r', begins
    if not earlier then
      set[#set + 1], set[#set + 2] = 'v', ARGV[9]
    end
  elseif s.spent then
    s.stale[#s.stale + 1], s.stale[#s.stale + 2] = 'r', 'v'
  end
  if s.waits ~= waits and #s.waits > 1 then
    set[#set + 1], set[#set + 2] = 'w', s.waits
  end
  for _, g in ipairs(s.granted or {}) do
    set[#set + 1], set[#set + 2] = g.field, g.value
  end
  for i = 1, #s.mended do
    set[#set + 1] = s.mended[i]
  end
  if s.waits ~= waits and #s.waits <= 1 then
    s.stale[#s.stale + 1] = 'w'
  end
  if isString then
    redis.call('SET', key, joined(s.flat, set, s.stale), 'PX', ms)
    return 1
  end
  if #set > 0 then
    redis.call('HSET', key, unpack(set))
  end
  if #s.stale > 0 then
    -- pcall: this is but tidying up.
    redis.pcall('HDEL', key, unpack(s.stale))
  end
  local done = redis.pcall('PEXPIRE', key, ms)
  if type(done) == 'table' then
    -- Without the right to do this: better no key than one without an end.
    if s.exists then
      redis.pcall('HDEL', key, field or 'w')
      if earlier then
        redis.pcall('HSET', key, 'r', earlier)
      elseif begins then
        redis.pcall('HDEL', key, 'r', 'v')
      end
    else
      redis.pcall('DEL', key)
    end
  end
  return done
end

local waits = s.waits
local from, to = place(s, lease)

-- The owner that would hold, and what it holds already.
local who, held = owner, s.owners[owner]
if s.own then
  who = s.own.owner
elseif via ~= '' and s.owners[via] then
  who, held = via, s.owners[via]
end
if not s.own then
  if held and weight > held.heaviest then
    return {HEAVY}
  end
  local fits, after = room(s, lease, who, held, weight, limit, fair)
  if not fits then
    if wait then
      local life = math.min(ttl, WAITER_LIFE)
      local line = string.format('%s %.0f %d %.0f %.0f %s %s\n',
        lease, now + life, (fair and 1 or 0) + (run and 2 or 0) + (listens and 4 or 0), weight, limit, owner, id)
      if from then
        s.waits = string.sub(s.waits, 1, from - 1) .. line .. string.sub(s.waits, to + 1)
      else
        -- To look at each takes its time, and most of the dead are in front. So a long list is
        -- looked through when its first is dead, and else one time in 64.
        if #s.waits < 4096 or us % 64 == 0 or not alive(string.match(s.waits, ' (%d+)')) then
          local live = {'\n'}
          for other in string.gmatch(s.waits, '[^\n]+\n') do
            if alive(string.match(other, ' (%d+)')) then
              live[#live + 1] = other
            end
          end
          s.waits = table.concat(live)
        end
        s.waits = #s.waits > 0 and s.waits .. line or '\n' .. line
      end
    end
    if s.waits ~= waits or #s.stale + #s.mended > 0 then
      local done = save(waits)
      if type(done) == 'table' then
        return done
      end
    end
    local left = math.max((after or now) - now, 1)
    if wait then
      -- A line has some 120 bytes.
      return {BUSY, left, math.ceil(#s.waits / 120), now + math.min(ttl, WAITER_LIFE)}
    end
    return {BUSY, left}
  end
end

if exclusive then
  if s.own or held then
    s.token = math.max(s.token, least)
  else
    s.token = math.max(s.token + STEP, us, least)
  end
end
if from then
  s.waits = string.sub(s.waits, 1, from - 1) .. string.sub(s.waits, to + 1)
end
local begins, earlier
if run and not (s.record and (s.own or begun(s.record, lease))) then
  local attempt, state, retain, before = 1, ' 0 ', tonumber(ARGV[10]), ''
  if s.record then
    attempt, state, earlier = s.record.attempt + 1, ' 3 ', s.record.text
    before = ' ' .. s.record.deadline .. ' ' .. s.record.state .. ' ' .. s.record.by
  end
  s.record = {deadline = now + retain, attempt = attempt}
  begins = now + retain .. ' ' .. attempt .. state .. lease .. before
end
local deadline = now + ttl
if s.own then
  deadline = math.max(deadline, s.own.deadline)
else
  hold(s, who, weight)
end
s.own = {deadline = deadline, weight = weight, owner = who}
if #s.waits > 1 and s.sum < ALL then
  wake(s)
end
local done = save(waits, 'h:' .. lease, text(deadline - now, who, weight), begins, earlier)
if type(done) == 'table' then
  return done
end
announce(s)
local token = exclusive and s.token or 0
if run then
  return {OK, token, who, s.record.attempt, s.record.deadline - now, s.value}
end
if who ~= owner then
  return {OK, token, who}
end
return token
