-- How many messages of each entity have which fate.
select "primary", path_key, verdict, count(*) as messages
from {{ source('sbpair_audit', 'messages') }}
group by all
