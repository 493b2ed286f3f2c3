-- Refuses first calls while a number that Prometheus gives is above a limit, before any server sees them.
-- What is not one plain number is unknown, and NaN is never taken for little: see `unknown` below.
local FIRST_CALLS = { ["/inference.GRPCInferenceService/RepositoryIndex"] = true }
local PATH, AUTHORITY = "@PATH@", "@AUTHORITY@"
local LIMIT, FAIL_OPEN = @LIMIT@, @FAIL_OPEN@
local TIMEOUT_MS, RETRY_SECONDS = 1000, 10
local FULL, UNKNOWN = "the load is above the limit", "the load is unknown"
-- google.rpc.Status with code 8, the text of FULL, and RetryInfo of RETRY_SECONDS; without padding, as gRPC has it.
local FULL_DETAILS = "CAgSG3RoZSBsb2FkIGlzIGFib3ZlIHRoZSBsaW1pdBowCih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUmV0cnlJbmZvEgQKAggK"

-- The number in an answer, or nothing and why.
local function number_in(body)
  if not body:find('"status"%s*:%s*"success"') then return nil, "no success" end
  local _, rows = body:gsub('"value"%s*:', "")
  if rows > 1 then return nil, "several rows" end
  -- [TIME, "TEXT"], of a vector or a scalar; the time may be whole seconds.
  local text = body:match('[:%s]%[%s*[%d%.eE%+%-]+%s*,%s*"([^"]*)"%s*%]')
  if not text then return nil, "no row" end
  if text == "+Inf" then return math.huge end
  -- tonumber alone takes blanks, hexadecimal and NaN.
  if not text:find("^%-?%d+%.?%d*[eE]?[%+%-]?%d*$") then return nil, "no number: " .. text end
  local number = tonumber(text)
  if not number then return nil, "no number: " .. text end
  return number
end

local function ask(handle)
  local called, headers, body = pcall(function()
    return handle:httpCall("prometheus", { [":method"] = "GET", [":path"] = PATH, [":authority"] = AUTHORITY }, nil, TIMEOUT_MS)
  end)
  if not called then return nil, tostring(headers) end
  if headers[":status"] ~= "200" then return nil, "status " .. tostring(headers[":status"]) end
  return number_in(body or "")
end

local function refuse(handle, is_full)
  local is_grpc = (handle:headers():get("content-type") or ""):find("application/grpc", 1, true) == 1
  local message, retry = is_full and FULL or UNKNOWN, tostring(RETRY_SECONDS)
  if not is_grpc then
    handle:respond({ [":status"] = is_full and "429" or "503", ["content-type"] = "text/plain", ["retry-after"] = retry }, message .. "\n")
    return
  end
  -- Trailers only, which every gRPC client reads; a body would replace grpc-message.
  local answer = {
    [":status"] = "200", ["content-type"] = "application/grpc", ["retry-after"] = retry,
    ["grpc-status"] = is_full and "8" or "14", ["grpc-message"] = message,
  }
  if is_full then answer["grpc-status-details-bin"] = FULL_DETAILS end
  handle:respond(answer)
end

function envoy_on_request(handle)
  local path = (handle:headers():get(":path") or ""):match("^[^?]*")
  if not FIRST_CALLS[path] then return end
  -- An error in Lua would let the call pass.
  local ran, number, why = pcall(ask, handle)
  if not ran then number, why = nil, number end
  if number then
    if number > LIMIT then refuse(handle, true) end
    return
  end
  handle:logWarn("the load is unknown: " .. tostring(why))
  if not FAIL_OPEN then refuse(handle, false) end
end
