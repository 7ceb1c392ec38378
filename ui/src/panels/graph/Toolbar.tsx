import { ActionIcon, Checkbox, Popover, Stack } from '@mantine/core'
import {
  IconAdjustmentsHorizontal,
  IconFold,
  IconArrowsMaximize,
  IconArrowsMinimize,
  IconFocusCentered,
  IconViewportWide,
  IconZoomIn,
  IconZoomOut,
} from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { ActionButton } from '~/parts/ActionButton'
import css from './graph.module.css'
import { useOpenParts } from './openPart'
import { graphTexts } from './texts'

export function Toolbar({ isLarge }: { isLarge: boolean }) {
  const { t } = useTranslation(graphTexts)
  const parameters = useOpenParts((parts) => parts.parameters)
  const constants = useOpenParts((parts) => parts.constants)
  const show = useOpenParts((parts) => parts.show)
  return (
    <div className={css['toolbar']} role="toolbar" aria-label={t('group')} aria-orientation="vertical">
      <ActionButton id="graph.fit" icon={<IconViewportWide size={16} />} />
      <ActionButton id="graph.zoomIn" icon={<IconZoomIn size={16} />} />
      <ActionButton id="graph.zoomOut" icon={<IconZoomOut size={16} />} />
      <ActionButton id="graph.reveal" icon={<IconFocusCentered size={16} />} />
      <ActionButton id="graph.closeAll" icon={<IconFold size={16} />} />
      <Popover position="left-start" shadow="md" withArrow>
        <Popover.Target>
          <ActionIcon aria-label={t('show')} title={t('show')}>
            <IconAdjustmentsHorizontal size={16} />
          </ActionIcon>
        </Popover.Target>
        <Popover.Dropdown>
          <Stack gap="xs">
            <Checkbox
              label={t('showParameters')}
              checked={parameters}
              onChange={(event) => show({ parameters: event.currentTarget.checked })}
            />
            <Checkbox
              label={t('showConstants')}
              checked={constants}
              onChange={(event) => show({ constants: event.currentTarget.checked })}
            />
          </Stack>
        </Popover.Dropdown>
      </Popover>
      <ActionButton
        id="graph.fullScreen"
        icon={isLarge ? <IconArrowsMinimize size={16} /> : <IconArrowsMaximize size={16} />}
      />
    </div>
  )
}
