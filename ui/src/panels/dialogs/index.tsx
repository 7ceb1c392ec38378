import { Chooser } from '~/panels/compare/Chooser'
import { Login } from './Login'
import { Palette } from './Palette'
import { Recommended } from './Recommended'
import { Shortcuts } from './Shortcuts'

export { Connection } from './Connection'

/** All dialogs of the page. */
export function Dialogs() {
  return (
    <>
      <Chooser />
      <Recommended />
      <Shortcuts />
      <Palette />
      <Login />
    </>
  )
}
