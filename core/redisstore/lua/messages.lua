-- Messages to processes that wait, by PUBLISH. silent.lua is the same for servers whose scripts have
-- no such command.

local flags, id, channel = string.match(ARGV[1], '^%a+ ?(%a*) ?(%S*) ?(.*)$')

-- A message to a process is one of these two texts:
--
--   <key> <lease>                                   the waiter may be admitted: it asks
--   <key> <lease>\n<deadline> <token> <ms>          it was admitted
--
-- The key is KEYS[1], which can have spaces but no line end; a lease has neither. The deadline is
-- that of the waiter's place, as it stood in the wait list: it names the place for which the
-- grant counts. The token is the first one of the grant, 0 for a weight that has none. The grant
-- lasts for so many ms from the message on. All numbers are decimal digits, times are in ms.
-- release_relay.lua writes the second one too; wake of watch.go and readPush of push.go read
-- them.

-- publish sends a message to the process with an id. It returns how many connections have
-- got it, in a cluster those of one node, or nil where it may not publish: waiters poll then.
local function publish(id, message)
  local got = redis.pcall('PUBLISH', channel .. id, message)
  return type(got) == 'number' and got or nil
end

-- listening counts the subscribers of a process's own channel: PUBLISH also counts
-- those of a pattern of channels. It is false where that must not be asked.
local function listening(id)
  local got = redis.pcall('PUBSUB', 'NUMSUB', channel .. id)
  return not got.err and tonumber(got[2])
end

-- finish returns the answer of the script.
local function finish(answer)
  return answer
end

