-- The functions of messages.lua for servers whose scripts must not contain PUBLISH. The
-- caller publishes the messages after the script.

local flags, id, channel = string.match(ARGV[1], '^%a+ ?(%a*) ?(%S*) ?(.*)$')

-- The names of channels, each followed by its message.
local messages = {}

local function publish(id, message)
  messages[#messages + 1] = channel .. id
  messages[#messages + 1] = message
  return nil
end

-- listening returns false because PUBSUB is not available, so no lock is granted by
-- message.
local function listening()
  return false
end

-- finish returns the answer of the script. If there are messages, it returns {BEHIND,
-- answer, messages...}.
local function finish(answer)
  if #messages == 0 then
    return answer
  end
  local list = {BEHIND, answer}
  for _, text in ipairs(messages) do
    list[#list + 1] = text
  end
  return list
end

