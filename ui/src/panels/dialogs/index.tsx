/** The strip below the header: the server is gone, the run has ended, versions differ. */
export function Connection() {
  return <div />
}

/** Whatever opens over the page. */
export function Dialogs() {
  return null
}
