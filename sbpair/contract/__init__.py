"""The contract with Service Bus: every assumption about the service on which a promise rests, as a check that runs.

    entry      what an entry is, and how its check reports its observation
    subjects   the entries, one module per subject
    book       all entries, found in the modules of `subjects`
    scratch    the fixture of a check: its entities, and links and requests that end with it
    search     whether an entity holds messages, and where the canaries of a drill are
    plan       which entries can run, what they create and cost                     (pure)
    run        runs a plan, and deletes what it created
    record     the frames of a run in a file, without secrets
    report     the result as a page and as JSON                                     (pure)

A new entry is one function in the module of its subject:

    @entry(
        7,                                           # the next free number; never used again
        "An abandoned message is delivered again at once.",
        "G-2 X-1",                                   # the requirements that fail if it is wrong
        Price(1, 2),                                 # sends and receives, as the broker counts; a test compares
        source="message-transfers-locks-settlement",  # unless it is that of the subject
    )
    async def abandoned(ctx: Scratch) -> str:
        await ctx.send(ctx.message())
        ...
        return "it came again with delivery count 1"

If the sentence holds, the check returns its observation. If the sentence does not hold, it calls `expect` or raises
`DifferenceError`; if it cannot decide, it raises `UndecidedError`. An uncaught error of the client counts as *differs*
if the peer refused something, else as *unknown*. After a lost connection or an internal error the check runs once more:
it may then find *differs*, also by failing again on a namespace that answers, but never that the sentence holds.
Entities are declared with `entities=`, a single plain queue `q` by default. If the sentence says that these can be
created, set `about_creation=True`: then a refusal counts as *differs* too.

A check must end by itself within the time given in its entry: a check that is ended from outside is *unknown*, so it
could never fail. One test requires, for every entry, a broker that is wrong in exactly this point and on which the
check finds the difference. `python -m tests.trials.mutation.contract` measures the share that it finds of changes not
written for any entry.
"""
