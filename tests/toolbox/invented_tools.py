"""Invented tools of sixteen servers, and 100 requests with the acceptable tools.

Each line of `TOOLS` is a server, or a tool with its description and the names of its parameters.
Each line of `REQUESTS` is the query of a model or the words of a person, and the acceptable tools.
"""

TOOLS = """
ledger
create_invoice: Create an invoice for a customer. (customer_id, lines, due_date)
list_invoices: List invoices, with their state and amount. (state, customer_id)
void_invoice: Cancel an invoice that was not paid. (invoice_id)
record_payment: Record that a customer has paid an invoice. (invoice_id, amount)
get_balance_sheet: Assets, liabilities and equity at a date. (date)
get_profit_and_loss: Income and expenses of a period. (start, end)
list_overdue_receivables: What customers owe after the due date. (days)
upload_receipt: Attach a scanned receipt to an expense. (expense_id, file)
parcel
create_shipment: Book the shipment of a parcel. (sender, recipient, weight)
track_shipment: Where a parcel is, and when it arrives. (tracking_number)
print_label: Return the shipping label as PDF. (shipment_id)
cancel_shipment: Cancel a shipment before it is collected. (shipment_id)
quote_rates: Compare the prices of carriers. (weight, destination)
schedule_pickup: Have parcels collected at an address. (date, address)
validate_address: Check a postal address and complete it. (street, city, country)
clinic
book_appointment: Book an appointment of a patient with a doctor. (patient_id, doctor_id, start)
cancel_appointment: Cancel an appointment. (appointment_id)
list_free_slots: Free times of a doctor. (doctor_id, date)
get_patient_record: Diagnoses, allergies and medication of a patient. (patient_id)
add_prescription: Prescribe a medicine. (patient_id, medicine, dose)
list_lab_results: Results of laboratory tests. (patient_id)
kanban
createCard: Create a card on a board. (boardId, columnId, title)
moveCard: Move a card to another column. (cardId, columnId)
archiveCard: Archive a card. (cardId)
addChecklistItem: Add an item to the checklist of a card. (cardId, text)
assignMember: Assign a member to a card. (cardId, memberId)
listBoards: List the boards of the workspace.
setDueDate: Set when a card is due. (cardId, date)
addCardComment: Comment on a card. (cardId, text)
postbox
send-mail: Send a mail to recipients. (to, subject, body)
reply-to-mail: Reply to a mail. (mailId, body)
search-mails: Search mails by sender, subject and text. (query)
move-mail: Move a mail into a folder. (mailId, folder)
delete-mail: Delete a mail. (mailId)
create-mail-rule: Create a rule that sorts incoming mails. (condition, action)
download-attachment: Save an attachment of a mail. (mailId, name)
mark-as-read: Mark mails as read. (mailIds)
diary
create_event: Create an event in the calendar, with guests. (title, start, end, guests)
delete_event: Delete an event from the calendar. (event_id)
find_meeting_time: Find a time at which all guests are free. (guests, minutes)
respond_to_invitation: Accept or decline an invitation. (event_id, answer)
list_events: List the events of a day or a week. (start, end)
add_reminder: Add a reminder at a time. (text, time)
deploybot
start_deployment: Deploy a release to an environment. (service, release, environment)
rollback_deployment: Return to the previous release. (service, environment)
list_releases: List the releases of a service. (service)
get_pipeline_status: State of a build pipeline. (pipeline_id)
retry_pipeline: Run the failed jobs of a pipeline again. (pipeline_id)
get_job_log: Output of a job of a pipeline. (job_id)
scale_service: Change the number of instances of a service. (service, replicas)
set_variable: Set an environment variable of a service. (service, name, value)
watchtower
list_active_alerts: Alerts that are firing. (severity)
silence_alert: Mute an alert for a time. (alert_id, minutes)
query_metrics: Evaluate a metrics query over a period. (expression, start, end)
search_logs: Search the log lines of services. (query, start)
get_oncall_engineer: Who is on call now. (team)
create_incident: Open an incident. (title, severity)
list_slow_traces: Traces of requests that took longest. (service)
repohost
open_pull_request: Open a pull request. (repository, head, base, title)
merge_pull_request: Merge a pull request. (repository, number)
list_pull_request_files: Files that a pull request changes. (repository, number)
request_review: Ask members to review a pull request. (repository, number, reviewers)
create_branch: Create a branch. (repository, name, from)
delete_branch: Delete a branch. (repository, name)
fork_repository: Copy a repository to your account. (repository)
get_file_content: Content of a file at a revision. (repository, path, ref)
create_issue: Report a bug or request a feature. (repository, title, body)
list_vulnerability_alerts: Known vulnerabilities of dependencies. (repository)
sheets
read_range: Values of a range of cells. (sheet, range)
write_range: Write values into a range of cells. (sheet, range, values)
append_rows: Add rows at the end of a sheet. (sheet, rows)
create_pivot_table: Summarize rows by groups. (sheet, rows, columns, values)
create_chart: Draw a chart of a range. (sheet, range, kind)
add_conditional_format: Color cells that meet a condition. (range, condition, color)
sort_range: Sort rows by columns. (range, columns)
slides
add_slide: Add a slide to a presentation. (presentation, layout)
replace_text: Replace a text on all slides. (presentation, find, replace)
insert_image: Insert an image on a slide. (slide, file)
export_presentation: Export a presentation as PDF. (presentation)
set_transition: Set the transition between slides. (slide, effect)
atlas
geocode_address: Coordinates of an address. (address)
reverse_geocode: Address at coordinates. (latitude, longitude)
get_directions: Route between places, by car, bike or on foot. (origin, destination, mode)
search_places: Restaurants, shops and other places near a location. (query, location)
get_elevation: Height above the sea. (latitude, longitude)
get_timezone: Time zone of a location. (location)
cachebox
get_key: Value of a key. (key)
set_key: Store a value under a key. (key, value)
expire_key: Delete a key after a time. (key, seconds)
delete_key: Delete a key. (key)
push_to_list: Append a value to a list. (list, value)
publish_message: Publish a message to a channel. (channel, message)
docstore
find_documents: Documents of a collection that match a filter. (collection, filter)
insert_documents: Insert documents into a collection. (collection, documents)
update_documents: Update documents that match a filter. (collection, filter, change)
aggregate: Run an aggregation pipeline. (collection, pipeline)
list_collections: List the collections of a database. (database)
create_index: Create an index on fields. (collection, fields)
explain_query: Show how a query is executed. (collection, filter)
webhand
navigate_page: Open a URL in the browser. (url)
click_element: Click an element of the page. (selector)
fill_form: Fill in the fields of a form. (fields)
take_screenshot: Take a screenshot of the page. (full_page)
list_console_messages: Messages of the console of the browser. (level)
crawl_site: Fetch all pages of a website. (url, depth)
people
list_users: List the users of the organization.
create_access_key: Create an access key for a user. (user)
revoke_access_key: Revoke an access key. (key_id)
attach_policy: Attach a policy to a user or a role. (principal, policy)
simulate_policy: Whether a policy allows an action. (principal, action, resource)
add_group_member: Add a user to a group. (group, user)
"""

MODEL_REQUESTS = """
create invoice for customer | ledger:create_invoice
overdue receivables | ledger:list_overdue_receivables
profit and loss report | ledger:get_profit_and_loss
record invoice payment | ledger:record_payment
upload receipt file | ledger:upload_receipt
track parcel | parcel:track_shipment
shipping label pdf | parcel:print_label
compare shipping rates | parcel:quote_rates
schedule parcel pickup | parcel:schedule_pickup
validate postal address | parcel:validate_address
book doctor appointment | clinic:book_appointment
list free appointment slots | clinic:list_free_slots
lab results of patient | clinic:list_lab_results
prescribe medication | clinic:add_prescription clinic:get_patient_record
create card on kanban board | kanban:createCard
move card to another column | kanban:moveCard
add checklist item | kanban:addChecklistItem
set card due date | kanban:setDueDate
comment on card | kanban:addCardComment
send email | postbox:send-mail
reply to mail | postbox:reply-to-mail
create mail filter rule | postbox:create-mail-rule
download mail attachment | postbox:download-attachment
create calendar event | diary:create_event
find meeting time | diary:find_meeting_time
decline calendar invitation | diary:respond_to_invitation
add reminder | diary:add_reminder
deploy service to environment | deploybot:start_deployment
rollback deployment | deploybot:rollback_deployment
retry failed pipeline | deploybot:retry_pipeline
job log output | deploybot:get_job_log
scale service replicas | deploybot:scale_service
set environment variable | deploybot:set_variable
list firing alerts | watchtower:list_active_alerts
silence alert | watchtower:silence_alert
search logs | watchtower:search_logs
current on-call engineer | watchtower:get_oncall_engineer
slow request traces | watchtower:list_slow_traces
merge pull request | repohost:merge_pull_request
files changed in pull request | repohost:list_pull_request_files
request reviewers for pull request | repohost:request_review
delete branch in repository | repohost:delete_branch
fork repository | repohost:fork_repository
dependency vulnerability alerts | repohost:list_vulnerability_alerts
read range of cells | sheets:read_range
append rows to sheet | sheets:append_rows
create pivot table | sheets:create_pivot_table
conditional formatting of cells | sheets:add_conditional_format
replace text in presentation | slides:replace_text
export presentation to pdf | slides:export_presentation
slide transition | slides:set_transition
geocode address | atlas:geocode_address
driving directions | atlas:get_directions
search nearby restaurants | atlas:search_places
set key expiration | cachebox:expire_key
push value to list | cachebox:push_to_list
aggregation pipeline | docstore:aggregate
explain query plan | docstore:explain_query
browser take screenshot | webhand:take_screenshot
console messages of page | webhand:list_console_messages
create access key | people:create_access_key
simulate policy | people:simulate_policy
"""

PERSON_REQUESTS = """
who still has not paid us | ledger:list_overdue_receivables
did we earn money last year | ledger:get_profit_and_loss
put the scan of the restaurant bill to my expenses | ledger:upload_receipt
where is my parcel now | parcel:track_shipment
what would it cost to ship this to Norway | parcel:quote_rates
the courier should come on friday to collect the boxes | parcel:schedule_pickup
I need to see Dr. Jones next week | clinic:book_appointment clinic:list_free_slots
which allergies does this patient have | clinic:get_patient_record
drag the card over to Done | kanban:moveCard
hand this card to Tom | kanban:assignMember
answer her mail | postbox:reply-to-mail
throw that mail away | postbox:delete-mail
put all newsletters into a folder automatically from now on | postbox:create-mail-rule
when can all five of us meet | diary:find_meeting_time
I cannot make it to the meeting, tell them no | diary:respond_to_invitation
remind me of the dentist at nine | diary:add_reminder
what is on my calendar tomorrow | diary:list_events
ship release 4.2 to production | deploybot:start_deployment
undo the last deployment | deploybot:rollback_deployment
is the build green | deploybot:get_pipeline_status
run the broken jobs of the pipeline again | deploybot:retry_pipeline
we need five more instances of the shop service | deploybot:scale_service
is anything on fire | watchtower:list_active_alerts watchtower:create_incident
keep the disk alert quiet for an hour | watchtower:silence_alert
who has pager duty tonight | watchtower:get_oncall_engineer
which requests were slow | watchtower:list_slow_traces
ask Alice to look over my pull request | repohost:request_review
copy that project to my own account | repohost:fork_repository
file a bug: the login page is blank | repohost:create_issue
color all cells below zero red | sheets:add_conditional_format
put our logo on the second slide | slides:insert_image
turn the deck into a pdf | slides:export_presentation
how do I get from Bern to Milan by car | atlas:get_directions
pizza near the station | atlas:search_places
how high is that village | atlas:get_elevation
this key should vanish after an hour | cachebox:expire_key
why is this query so slow | docstore:explain_query
press the buy button | webhand:click_element
Bob's key leaked, make it useless | people:revoke_access_key
"""
