import { Chooser } from '~/panels/compare/Chooser'
import { Login } from './Login'
import { Palette } from './Palette'
import { Recommended } from './Recommended'
import { Shortcuts } from './Shortcuts'

export { Connection } from './Connection'

/** Whatever opens over the page. */
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
