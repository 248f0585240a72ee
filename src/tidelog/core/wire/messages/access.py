"""Messages about SASL, SCRAM passwords, ACLs, delegation tokens and quotas."""

_FILTER = """resource_type_filter i8, resource_name_filter string ?
{indent}pattern_type_filter i8 =3, principal_filter string ?, host_filter string ?
{indent}operation i8, permission_type i8"""

MESSAGES = {
    # SaslHandshake
    17: """
request
  mechanism string
response
  error_code i16, mechanisms []string
""",
    # DescribeAcls
    29: f"""
request
  {_FILTER.format(indent="  ")}
response
  throttle_time_ms i32, error_code i16, error_message string ?
  resources []
    resource_type i8, resource_name string, pattern_type i8 =3
    acls []
      principal string, host string, operation i8, permission_type i8
""",
    # CreateAcls
    30: """
request
  creations []
    resource_type i8, resource_name string, resource_pattern_type i8 =3, principal string
    host string, operation i8, permission_type i8
response
  throttle_time_ms i32
  results []
    error_code i16, error_message string ?
""",
    # DeleteAcls
    31: f"""
request
  filters []
    {_FILTER.format(indent="    ")}
response
  throttle_time_ms i32
  filter_results []
    error_code i16, error_message string ?
    matching_acls []
      error_code i16, error_message string ?, resource_type i8, resource_name string
      pattern_type i8 =3, principal string, host string, operation i8, permission_type i8
""",
    # SaslAuthenticate
    36: """
request
  auth_bytes bytes
response
  error_code i16, error_message string ?, auth_bytes bytes, session_lifetime_ms i64 1+
""",
    # DescribeClientQuotas
    48: """
request
  components []
    entity_type string, match_type i8, match string ?
  strict bool
response
  throttle_time_ms i32, error_code i16, error_message string ?
  entries [] ?
    entity []
      entity_type string, entity_name string ?
    values []
      key string, value f64
""",
    # AlterClientQuotas
    49: """
request
  entries []
    entity []
      entity_type string, entity_name string ?
    ops []
      key string, value f64, remove bool
  validate_only bool
response
  throttle_time_ms i32
  entries []
    error_code i16, error_message string ?
    entity []
      entity_type string, entity_name string ?
""",
    # CreateDelegationToken
    38: """
request
  owner_principal_type string 3+ ?, owner_principal_name string 3+ ?
  renewers []
    principal_type string, principal_name string
  max_lifetime_ms i64
response
  error_code i16, principal_type string, principal_name string
  token_requester_principal_type string 3+, token_requester_principal_name string 3+
  issue_timestamp_ms i64, expiry_timestamp_ms i64, max_timestamp_ms i64, token_id string
  hmac bytes, throttle_time_ms i32
""",
    # RenewDelegationToken
    39: """
request
  hmac bytes, renew_period_ms i64
response
  error_code i16, expiry_timestamp_ms i64, throttle_time_ms i32
""",
    # ExpireDelegationToken
    40: """
request
  hmac bytes, expiry_time_period_ms i64
response
  error_code i16, expiry_timestamp_ms i64, throttle_time_ms i32
""",
    # DescribeDelegationToken
    41: """
request
  owners [] ?
    principal_type string, principal_name string
response
  error_code i16
  tokens []
    principal_type string, principal_name string
    token_requester_principal_type string 3+, token_requester_principal_name string 3+
    issue_timestamp i64, expiry_timestamp i64, max_timestamp i64, token_id string, hmac bytes
    renewers []
      principal_type string, principal_name string
  throttle_time_ms i32
""",
    # DescribeUserScramCredentials
    50: """
request
  users [] ?
    name string
response
  throttle_time_ms i32, error_code i16, error_message string ?
  results []
    user string, error_code i16, error_message string ?
    credential_infos []
      mechanism i8, iterations i32
""",
    # AlterUserScramCredentials
    51: """
request
  deletions []
    name string, mechanism i8
  upsertions []
    name string, mechanism i8, iterations i32, salt bytes, salted_password bytes
response
  throttle_time_ms i32
  results []
    user string, error_code i16, error_message string ?
""",
}
