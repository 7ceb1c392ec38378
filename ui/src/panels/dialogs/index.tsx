/** The strip below the header: the server is gone, the run has ended, versions differ. */
export function Connection({ isConnected }: { isConnected: boolean }) {
  return isConnected ? <div /> : <div role="alert" />
}

/** Whatever opens over the page. */
export function Dialogs() {
  return null
}
