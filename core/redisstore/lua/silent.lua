-- The functions of messages.lua for servers whose scripts may not contain PUBLISH: the
-- caller publishes behind the script.

local flags, id, channel = string.match(ARGV[1], '^%a+ ?(%a*) ?(%S*) ?(.*)$')

-- The messages, each behind the name of its channel.
local messages = {}

local function publish(id, message)
  messages[#messages + 1] = channel .. id
  messages[#messages + 1] = message
  return nil
end

-- listening returns false because the count may not be asked, so no grant goes by
-- message.
local function listening()
  return false
end

-- finish returns the answer of the script, or if there are messages {BEHIND, answer,
-- messages...}.
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

