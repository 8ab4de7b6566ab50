package My::Suite::Weir;

@ISA = qw(My::Suite);

return "the plugin is not there" unless $ENV{HA_WEIR_SO};

sub is_default { 0 }

bless { };
