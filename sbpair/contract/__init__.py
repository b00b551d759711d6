"""The contract with Service Bus: every assumption about the service on which a promise rests, as a check that runs.

    entry      what an entry is, and how its check says what it saw
    subjects   the entries, one module a subject
    book       all entries, found in the modules of `subjects`
    scratch    what a check is handed: entities, links and requests of its own, which end with it
    plan       which entries can run, what they create and cost                     (pure)
    run        runs a plan, and deletes what it created
    record     the frames of a run in a file, without secrets
    cleaning   finds and deletes what a run that was killed left behind
    report     the result as a page and as JSON                                     (pure)

A new entry is one function in the module of its subject:

    @entry(
        "locks-7",                                   # the subject and the next free number; never used again
        "An abandoned message is delivered again at once.",
        falls=("G-2", "X-1"),                        # the requirements that fall if it is wrong
        source="message-transfers-locks-settlement",
        price=Price(sends=1, receives=2),            # as the broker counts; a test compares
    )
    async def abandoned(at: Scratch) -> str:
        await at.send(at.message())
        ...
        return "it came again with delivery count 1"

The check returns what it saw if the sentence holds, calls `expect` (or raises `DifferenceError`) where it does not, and
raises `UndecidedError` where it cannot tell. An error of the client that it does not catch is *differs* if the peer
refused something, else *unknown*. Entities are declared with `entities=`, a single plain queue `q` by default. A
sentence that says that these can be created has `about_creation=True`: then a refusal is *differs* too.

A wait belongs within the time that the entry says it takes: a check that is ended from outside is *unknown*, so it
could not fail. A test asks of every entry for a broker that is wrong in its one thing, and on which it says so.
"""
