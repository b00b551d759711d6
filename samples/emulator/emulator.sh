#!/usr/bin/env bash
# Send and receive with curl: a shared access signature is an HMAC over the URL and the expiry.
set -euo pipefail
part() { sed -E "s/(^|.*;)$1=([^;]*).*/\2/" <<<"$SBPAIR_PRIMARY"; }
encode() { sed -e 's/%/%25/g; s/+/%2B/g; s/\//%2F/g; s/=/%3D/g; s/:/%3A/g'; }

host=$(part Endpoint | sed -E 's#^sb://([^/]*)/?$#\1#')
resource=$(encode <<<"http://$host/orders")
expiry=$(($(date +%s) + 3600))
signature=$(printf '%s\n%s' "$resource" "$expiry" |
  openssl dgst -sha256 -hmac "$(part SharedAccessKey)" -binary | base64 | tr -d '\n' | encode)
token="SharedAccessSignature sr=$resource&sig=$signature&se=$expiry&skn=$(part SharedAccessKeyName)"

curl -sf "http://$host/orders/messages" -H "Authorization: $token" -d 'hello from curl'
printf 'received: %s\n' \
  "$(curl -sf -X DELETE "http://$host/orders/messages/head?timeout=5" -H "Authorization: $token")"
