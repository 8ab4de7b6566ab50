mod status;
