# Generated from the flags of sb-trace by `make man`. DO NOT EDIT.

complete -c sb-trace -n __fish_use_subcommand -a summary -d 'sums a trace up: memory, speed, reads, tiers, the slowest ops'
complete -c sb-trace -n '__fish_seen_subcommand_from summary' -l json -d 'print JSON instead of text'
complete -c sb-trace -n '__fish_seen_subcommand_from summary' -l quiet -s q -d 'no progress and no notes on stderr'
complete -c sb-trace -n '__fish_seen_subcommand_from summary' -l verbose -s v -d 'say more on stderr'
complete -c sb-trace -n __fish_use_subcommand -a validate -d 'checks that a trace is whole and that its lines agree with each other'
complete -c sb-trace -n '__fish_seen_subcommand_from validate' -l quiet -s q -d 'no progress and no notes on stderr'
complete -c sb-trace -n '__fish_seen_subcommand_from validate' -l verbose -s v -d 'say more on stderr'
